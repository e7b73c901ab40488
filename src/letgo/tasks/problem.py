"""The former name of `letgo.tasks.task`."""

from letgo.tasks.task import Problem, Task, changed_clues, random_masks

__all__ = ["Problem", "Task", "changed_clues", "random_masks"]
