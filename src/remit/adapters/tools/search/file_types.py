"""File types that Grep accepts, with the names that ripgrep uses."""

from collections.abc import Mapping

from remit.errors import unknown

_C_HEADERS = "*.h *.hh *.hpp *.hxx *.inl"

_GLOBS = {
    "asm": "*.asm *.s *.S",
    "c": "*.c *.h *.H *.cats",
    "clojure": "*.clj *.cljc *.cljs *.cljx *.edn",
    "cmake": "*.cmake CMakeLists.txt",
    "config": "*.cfg *.conf *.config *.ini",
    "cpp": f"*.C *.cc *.cpp *.cxx *.H {_C_HEADERS}",
    "cs": "*.cs",
    "css": "*.css *.scss",
    "csv": "*.csv",
    "dart": "*.dart",
    "diff": "*.diff *.patch",
    "docker": "*Dockerfile*",
    "elixir": "*.ex *.exs *.eex *.heex *.leex *.livemd",
    "elm": "*.elm",
    "erlang": "*.erl *.hrl",
    "fortran": "*.f *.F *.f77 *.F77 *.f90 *.F90 *.f95 *.F95 *.pfo",
    "fsharp": "*.fs *.fsi *.fsx",
    "go": "*.go",
    "gradle": "*.gradle *.gradle.kts",
    "graphql": "*.graphql *.graphqls",
    "groovy": "*.groovy *.gradle",
    "h": "*.h *.hh *.hpp",
    "haskell": "*.hs *.lhs *.hsc *.c2hs *.cpphs",
    "html": "*.htm *.html *.ejs",
    "java": "*.java *.jsp *.jspx *.properties",
    "jinja": "*.j2 *.jinja *.jinja2",
    "js": "*.js *.jsx *.cjs *.mjs *.vue",
    "json": "*.json *.sarif composer.lock",
    "jsonl": "*.jsonl",
    "julia": "*.jl",
    "jupyter": "*.ipynb *.jpynb",
    "kotlin": "*.kt *.kts",
    "less": "*.less",
    "lisp": "*.el *.lisp *.lsp *.sc *.scm",
    "lock": "*.lock package-lock.json",
    "log": "*.log",
    "lua": "*.lua",
    "make": "*.mak *.mk [Mm]akefile [Mm]akefile.am [Mm]akefile.in GNUmakefile",
    "markdown": "*.md *.markdown *.mdown *.mdwn *.mkd *.mkdn *.mdx",
    "nim": "*.nim *.nimble *.nimf *.nims",
    "nix": "*.nix",
    "objc": "*.h *.m",
    "ocaml": "*.ml *.mli *.mll *.mly",
    "perl": "*.pl *.PL *.pm *.perl *.plh *.plx *.t",
    "php": "*.php *.php3 *.php4 *.php5 *.php7 *.php8 *.phtml *.pht",
    "protobuf": "*.proto",
    "ps": "*.ps1 *.psm1 *.psd1 *.ps1xml *.cdxml",
    "py": "*.py *.pyi",
    "r": "*.R *.r *.Rmd *.Rnw",
    "rst": "*.rst",
    "ruby": "*.rb *.rbw *.gemspec .irbrc Gemfile Rakefile config.ru",
    "rust": "*.rs",
    "sass": "*.sass *.scss",
    "scala": "*.scala *.sbt",
    "sh": "*.sh *.bash *.bashrc *.csh *.ksh *.tcsh *.zsh .profile .bashrc .zshrc .bash_profile",
    "sql": "*.sql *.psql",
    "svelte": "*.svelte",
    "svg": "*.svg",
    "swift": "*.swift",
    "tex": "*.tex *.ltx *.cls *.sty *.bib *.dtx *.ins",
    "tf": "*.tf *.tfvars *.hcl",
    "thrift": "*.thrift",
    "toml": "*.toml Cargo.lock",
    "ts": "*.ts *.tsx *.cts *.mts",
    "txt": "*.txt",
    "verilog": "*.v *.vh *.sv *.svh",
    "vhdl": "*.vhd *.vhdl",
    "vim": "*.vim .vimrc vimrc",
    "vue": "*.vue",
    "xml": "*.xml *.dtd *.rng *.sch *.xhtml *.xjb *.xml.dist *.xsd *.xsl *.xslt",
    "yaml": "*.yaml *.yml",
    "zig": "*.zig",
}

_ALIASES = {
    "bash": "sh",
    "c++": "cpp",
    "csharp": "cs",
    "dockerfile": "docker",
    "golang": "go",
    "hs": "haskell",
    "javascript": "js",
    "jl": "julia",
    "kt": "kotlin",
    "makefile": "make",
    "md": "markdown",
    "proto": "protobuf",
    "python": "py",
    "rb": "ruby",
    "rs": "rust",
    "shell": "sh",
    "terraform": "tf",
    "typescript": "ts",
    "yml": "yaml",
}

Globs = tuple[str, ...]
FILE_TYPES: Mapping[str, Globs] = {name: tuple(globs.split()) for name, globs in _GLOBS.items()}
"""The file name patterns of each type."""


def globs_of(name: str) -> Globs:
    """Return the file name patterns of a type; `InvalidParam` for an unknown type."""
    known = _ALIASES.get(name.lower(), name.lower())
    if known in FILE_TYPES:
        return FILE_TYPES[known]
    raise unknown("type", "file type", name[:60], [*FILE_TYPES, *_ALIASES])
