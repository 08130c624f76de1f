package detect

import "strings"

// codeNames are the ends of names of source code, and whole names that have none, with a point before them.
var codeNames = fields(`
	.c .h .cc .cpp .cxx .hpp .hh .m .mm .cs .fs .vb .java .kt .kts .scala .groovy .gradle .go .rs .zig .nim .d .swift .dart
	.js .mjs .cjs .jsx .ts .tsx .vue .svelte .css .scss .less .php .rb .py .pyi .pl .pm .lua .tcl .r .jl .sh .bash .zsh .fish .ps1 .bat .cmd
	.hs .ml .mli .elm .ex .exs .erl .clj .cljs .lisp .el .scm .sql .graphql .proto .tf .hcl .yaml .yml .toml .ini .cfg .properties .cmake
	.f90 .f .pas .ada .adb .cob .asm .s .vhd .vhdl .sv .sol .sty .cls .bib .makefile .dockerfile .jenkinsfile .vagrantfile`)

func fields(list string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(list) {
		set[name] = true
	}
	return set
}
