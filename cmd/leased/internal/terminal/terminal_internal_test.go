package terminal

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"deploy/api":                      "deploy/api",
		"größe 日本":                        "größe 日本",
		"a\x1b[2Jb":                       `a\x1b[2Jb`,
		"a\nb\tc\r":                       `a\x0ab\x09c\x0d`,
		"\x9b31mred":                      `\x9b31mred`, // an invalid byte
		"\u009b31mred":                    `\u009b31mred`,
		"abc\u202edef":                    `abc\u202edef`,
		"e\u0301":                         "e\u0301",
		"e\u0301\u0301\u0301\u0301\u0301": "e\u0301\u0301\u0301" + `\u0301\u0301`,
		"\u0301":                          `\u0301`,
		"\U000e0041":                      `\U000e0041`,
		"zero\u200bwidth":                 `zero\u200bwidth`,
		"replacement \ufffd":              `replacement \ufffd`,
		"":                                "",
	} {
		require.Equal(t, want, Clean(text))
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		clean := Clean(text)
		require.True(t, utf8.ValidString(clean))
		require.Equal(t, -1, strings.IndexFunc(clean, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", clean)
		for width := range 12 {
			for _, middle := range []bool{false, true} {
				require.LessOrEqual(t, Width(Fit(clean, width, middle)), width)
			}
		}
	})
}

func TestFit(t *testing.T) {
	t.Parallel()
	require.Equal(t, "deploy/api", Fit("deploy/api", 10, false))
	require.Equal(t, "deploy/a…", Fit("deploy/api-gateway", 9, false))
	require.Equal(t, "depl…eway", Fit("deploy/api-gateway", 9, true))
	require.Equal(t, "…", Fit("deploy", 1, true))
	require.Equal(t, "日…", Fit("日本語", 4, false))
	require.Empty(t, Fit("deploy", 0, false))
}

var testColumns = []Column{{Title: "LOCK", Min: 8, Grow: true, Middle: true}, {Title: "HOLDER", Min: 6},
	{Title: "HELD", Right: true}, {Title: "NEXT", Min: 4, Drop: 1}}

func TestTable(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"deploy/production", "deploy-bot", "2h13m", "ann"}, {"日本/lock", "b", "1s", ""}}
	require.Equal(t, []string{
		"LOCK                       HOLDER       HELD  NEXT",
		"deploy/production          deploy-bot  2h13m  ann",
		"日本/lock                  b              1s",
	}, Table(testColumns, rows, 50))
	require.Equal(t, []string{
		"LOCK        HOLDER       HELD  NEXT",
		"deplo…tion  deploy-bot  2h13m  ann",
		"日本/lock   b              1s",
	}, Table(testColumns, rows, 35))
	require.Equal(t, []string{
		"LOCK      HOLDER   HELD",
		"depl…ion  deplo…  2h13m",
		"日本…ock  b          1s",
	}, Table(testColumns, rows, 23), "NEXT is left out")
	for width := range 60 {
		for _, line := range Table(testColumns, rows, width+1) {
			require.LessOrEqual(t, Width(line), width+1)
		}
	}
	require.Equal(t, []string{
		"LOCK               HOLDER       HELD  NEXT",
		"deploy/production  deploy-bot  2h13m  ann",
		"日本/lock          b              1s",
	}, Table(testColumns, rows, 0), "lines of any length")
	require.Equal(t, []string{"LOCK       HOLDER  HELD", "日本/lock  b         1s"}, Table(testColumns, rows[1:], 0),
		"NEXT is empty")
}

func TestDecode(t *testing.T) {
	t.Parallel()
	require.Equal(t, []Key{'q', Up, Down, PageUp, PageDown, Home, End, Enter, Backspace, 'ö'},
		decode([]byte("q\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[4~\r\x7fö")))
	require.Equal(t, []Key{Escape}, decode([]byte("\x1b")))
	require.Equal(t, []Key{Escape, 'x'}, decode([]byte("\x1bx")))
	require.Equal(t, []Key{'a'}, decode([]byte("\x1b[1;5Ca")), "an unknown key is ignored")
	require.Empty(t, decode([]byte("\x1b[")))
	require.Empty(t, decode([]byte{0xff, 0x00}))
}

func TestFrame(t *testing.T) {
	t.Parallel()
	lines := []Line{{"title", Bold}, {"a long line", Alert}, {"head", Inverse}, {"not visible", Plain}}
	require.Equal(t, "\x1b[H\x1b[1mtitle\x1b[m\x1b[K\r\n\x1b[1;31ma lon…\x1b[m\x1b[K\r\n\x1b[7mhead  \x1b[m\x1b[K\x1b[J",
		frame(lines, 6, 3, true))
	require.Equal(t, "\x1b[Htitle\x1b[K\r\na lon…\x1b[K\r\n\x1b[7mhead  \x1b[m\x1b[K\x1b[J", frame(lines, 6, 3, false),
		"no colors")
}
