"""`letgo completion`: a script with which a shell completes verbs, options and names of models, presets and rules."""

from __future__ import annotations

import argparse

SHELLS = {
    "bash": "add `source <(letgo completion bash)` to ~/.bashrc",
    "zsh": "add `source <(letgo completion zsh)` to ~/.zshrc, after compinit",
    "fish": "letgo completion fish > ~/.config/fish/completions/letgo.fish",
}
OF_MODELS = ("solve", "generate", "evaluate", "analyze", "export", "push", "tune")

BASH = """_letgo() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" verb="${COMP_WORDS[1]}" words=""
  if [ "$COMP_CWORD" = 1 ]; then words="VERBS"; else
    case "$before" in
      --rule) words="RULES" ;;
      --device) words="auto cpu cuda mps" ;;
      --precision) words="auto bf16 fp32" ;;
      *) case "$verb" in
CASES
      esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [ "${#COMPREPLY[@]}" = 0 ]; then COMPREPLY=($(compgen -f -- "$word")); fi
}
complete -o filenames -F _letgo letgo
"""


def add(parser: argparse.ArgumentParser) -> None:
    uses = "; ".join(f"{shell}: {use}" for shell, use in SHELLS.items())
    parser.add_argument("shell", choices=list(SHELLS), help=f"the script is printed. {uses}")


def run(args: argparse.Namespace) -> int:
    words = verb_words()
    print(fish(words) if args.shell == "fish" else bash(words, args.shell), end="")
    return 0


def verb_words() -> dict[str, list[str]]:
    """Return what may follow each verb: its options and the names that it takes."""
    from letgo.cli.main import VERBS, build_parser
    from letgo.presets import PRESETS
    from letgo.runs import shipped

    names = {**dict.fromkeys(OF_MODELS, shipped()), "train": list(PRESETS)}
    groups = next(a for a in build_parser(VERBS)._actions if isinstance(a, argparse._SubParsersAction))
    found = {}
    for verb, parser in groups.choices.items():
        own = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
        nested = [name for a in parser._actions if isinstance(a.choices, (list, dict)) and not a.option_strings
                  for name in a.choices]  # fmt: skip
        found[verb] = [*names.get(verb, []), *nested, *own]
    return found


def bash(words: dict[str, list[str]], shell: str) -> str:
    from letgo.samplers import RULES

    cases = "\n".join(f'        {verb}) words="{" ".join(options)}" ;;' for verb, options in words.items())
    script = BASH.replace("VERBS", " ".join(words)).replace("RULES", " ".join(RULES)).replace("CASES", cases)
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if shell == "zsh" else script


def fish(words: dict[str, list[str]]) -> str:
    from letgo.cli.main import VERBS

    none = "__fish_use_subcommand"
    told = {verb: VERBS[verb].replace("'", r"\'") for verb in words}
    lines = [f"complete -c letgo -n {none} -f -a {verb} -d '{text}'" for verb, text in told.items()]
    for verb, options in words.items():
        for word in options:
            kind = f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c letgo -n '__fish_seen_subcommand_from {verb}' {kind}")
    return "\n".join(lines) + "\n"
