"""The former place of what tasks of one's own import; `letgo.tasks` has all of it."""

from letgo.tasks.task import Problem, Task, changed_clues, random_masks

__all__ = ["Problem", "Task", "changed_clues", "random_masks"]
