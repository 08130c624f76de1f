package latex_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/latex"
)

func TestSource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tex  string
		want []string
	}{
		"a document": {`\documentclass[a4paper]{article}
\usepackage{amsmath} text of no document
\newcommand{\foo}[1]{\section{#1}}
\title{The \emph{Whole}\thanks{By us.}} \author{Ann \and Bo}\date{\today}
\begin{document}
\maketitle
\section*{One \& all}\label{sec:one}
Some \textbf{marked} text % a comment
of two lines -- with \LaTeX{}.

\subsection[short]{Deep}
End.
\end{document}
behind`, []string{"# The Whole", "p By us.", "p Ann, Bo", "## One & all", "p Some marked text of two lines – with LaTeX.", "### Deep", "p End."}},
		"a part":                   {"\\chapter{C}\n\\section{S}\ntext", []string{"# C", "## S", "p text"}},
		"parts":                    {`\part{A}\chapter{B}\paragraph{C}x\subparagraph{D}y`, []string{"# A", "## B", "### C", "p x", "#### D", "p y"}},
		"lists":                    {`\begin{enumerate}[label=a]\item One\item Two \begin{itemize}\item Inner\end{itemize}\item Three\end{enumerate}\begin{description}\item[Key] value\end{description}`, []string{"l 1. One", "l 2. Two", "l Inner", "l 3. Three", "l Key value"}},
		"a table":                  {`\begin{table}[htb]\caption{Sizes}\begin{tabular}{l|r}\hline A & B \\[2pt] \hline \multicolumn{2}{c}{both} \\ 1\,000 & \textbf{2} \end{tabular}\end{table}after`, []string{"p Sizes", "t A | B\nboth | both\n1 000 | 2", "p after"}},
		"nested tables":            {`\begin{tabular}{ll}a & \begin{tabular}{l}x \\ y & z\end{tabular} \\ b & c\end{tabular}`, []string{"t a | x y z\nb | c"}},
		"a footnote":               {"Text\\footnote{A \\emph{note}, see \\cite[p.~3]{knuth}.} goes on.\n\nNext.", []string{"p Text goes on.", "p A note, see [knuth].", "p Next."}},
		"verbatim":                 {"a\\begin{verbatim}\n  x { % kept\n    y\n\\end{verbatim}b \\verb|{$| \\begin{lstlisting}[language=Go]\nfunc f()\n\\end{lstlisting}", []string{"p a", "c   x { % kept\n    y", "p b {$", "c func f()"}},
		"math":                     {`a $x^2 \$ y$ and \(z\), costs \$5 $$\sum_i$$ \begin{equation}\label{e}a=b\end{equation} see \ref{e} \[c\]`, []string{`p a $x^2 \$ y$ and $z$, costs $5`, `p \sum_i`, `p \label{e}a=b`, "p see [e]", "p c"}},
		"a lone dollar":            {"costs $5\n\nand $6", []string{"p costs $5", "p and $6"}},
		"letters":                  {`\'e\"{o}\c{c}\v s\^\i \ss{} \o l\'{\i}nea Poincar\'e's ` + "``q''", []string{"p éöçšîß øl" + "ínea Poincaré's “q”"}},
		"dropped":                  {`\begin{tikzpicture}\draw (0,0);\end{tikzpicture}\begin{comment}no\end{comment}\includegraphics[width=1cm]{a.png}\index{no}\vspace{1em}\textcolor{red}{yes}\href{http://a}{link}\newcommand\no{no}`, []string{"p yeslink"}},
		"a theorem":                {`\begin{theorem}[Euclid]Primes.\end{theorem}\begin{figure}[h!]\caption[s]{C}\end{figure}`, []string{"p Euclid Primes.", "p C"}},
		"slides":                   {`\title{T}\begin{frame}{One}a\end{frame}\begin{frame}\frametitle{Two}b\end{frame}`, []string{"# T", "## One", "p a", "## Two", "p b"}},
		"a bibliography":           {`\begin{thebibliography}{9}\bibitem[K]{k} Knuth. \bibitem{l} Lamport.\end{thebibliography}`, []string{"l Knuth.", "l Lamport."}},
		"braces unpaired":          {"} a \\section{b\n\nc { d", []string{"p a", "p b", "p c d"}},
		"Chinese":                  {"持久化\n异步", []string{"p 持久化异步"}},
		"a commented body":         {"% \\begin{document}\ntext \\% x", []string{"p text % x"}},
		"an open table":            {`\begin{tabular}{l}a & b \\ c & \begin{tabular}{l} d`, []string{"t a | b\nc | d"}},
		"an open table's document": {`\begin{document}\begin{tabular}{l}a & b\end{document}c`, []string{"t a | b"}},
		"too deep":                 {strings.Repeat(`\footnote{`, 50) + "x" + strings.Repeat("}", 50) + " y", []string{"p y", "p x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, latex.Read, document.TypeLaTeX, []byte(c.tex), c.want...)
		})
	}
}

func TestTitleAndOtherFiles(t *testing.T) {
	t.Parallel()
	var out *document.Sink
	read := func(tex string) ingest.Extraction {
		in := &document.Input{File: strings.NewReader(tex), Size: int64(len(tex)), MediaType: document.TypeLaTeX, Progress: func(int, int) {}}
		out = document.NewSink(document.Limits{MaxTextBytes: 1 << 20}, func(ingest.Block) error { return nil })
		ex, err := latex.Read(t.Context(), in, out)
		require.NoError(t, err)
		return ex
	}
	ex := read(`\title{A \textit{title}}\begin{document}\input{chapters/one}\include{two}text`)
	require.Equal(t, "A title", ex.Title)
	require.Equal(t, []string{`"chapters/one" is another file, which was not read`, `"two" is another file, which was not read`}, out.Warnings)
}

// Every search for an end is made once: what is never closed costs no time.
func TestWhatIsNeverClosed(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{`\footnote{`, `\section{`, "$", `\(`, `\[`, "$$ ", `\begin{verbatim}`, `\begin{align}`, `\a[`, `\verb|`, `\begin{tabular}{l}`, `\begin{itemize}`, `\item[`, `{`, `\\[`, `\'`, "x$y\n\n"} {
		data := []byte(`\footnote{` + strings.Repeat(piece, 200_000/len(piece)) + `} \) \] \end{verbatim}`)
		_, _, err := extracttest.ReadBytes(latex.Read, data, document.TypeLaTeX)
		require.NoError(t, err, piece)
	}
}

func TestALargeFileIsPlainText(t *testing.T) {
	t.Parallel()
	_, blocks, err := extracttest.ReadBytes(latex.Read, []byte(strings.Repeat("a line of text\n\n", 300_000)), document.TypeLaTeX)
	require.NoError(t, err)
	require.Len(t, blocks, 300_000)
}

func FuzzLaTeX(f *testing.F) {
	f.Add([]byte(`\title{a}\begin{document}\section{b}\footnote{c $d$} \begin{tabular}{l}e & f\\ \multicolumn{2}{c}{g}\end{tabular}\end{document}`))
	f.Add([]byte(`\begin{enumerate}\item a\end{enumerate}\'e\verb|b|\begin{verbatim}c\end{verbatim}\def\d#1{e}\newcommand\f[1]{g}`))
	extracttest.FuzzReader(f, latex.Read, document.TypeLaTeX, ".tex")
}
