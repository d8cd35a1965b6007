package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// firstSection starts the cluster that all other sections with commands use.
const firstSection = "Start a cluster of three"

// requiredSections are the procedures that an operator needs in an emergency. Each of
// them must have commands that run.
var requiredSections = []string{"Find what blocks", firstSection, "Backup and restore", "Rolling upgrade",
	"Lost majority", "Lost disk of one member",
	"Replace a member", "Emptied Redis", "A poisoned gate", "Clock trouble", "Certificates", "Users", "Audit log",
	"Limits", "Signing keys", "Modes", "Redis fleet"}

// runbook is the document whose commands TestRunbook runs.
const runbook = "docs/OPERATIONS.md"

// textBlocks is the number of blocks in the runbook that no test runs, because they
// need another machine or show a file of another program.
const textBlocks = 3

// section is a chapter of the runbook.
type section struct {
	title    string
	commands []documented
}

// documented is a command of the runbook, and the lines that it prints.
type documented struct {
	line   int
	script string
	output []string
}

// readRunbook returns the sections of the runbook, and the number of blocks that are not
// run. In a console block, "$ " begins a command, "> " continues it, and other lines are
// output.
func readRunbook(t *testing.T) (sections []section, texts int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, runbook))
	require.NoError(t, err)
	fence := ""
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSuffix(line, "\n")
		switch language, isFence := strings.CutPrefix(line, "```"); {
		case isFence && fence != "":
			fence = ""
		case isFence:
			require.Contains(t, []string{"console", "text", "yaml", "json"}, language,
				"%s:%d: language of a block", runbook, number)
			fence = language
			if language == "text" {
				texts++
			}
		case fence == "" && strings.HasPrefix(line, "## "):
			sections = append(sections, section{title: line[len("## "):]})
		case fence == "console":
			require.NotEmpty(t, sections)
			sections[len(sections)-1].add(t, number, line)
		}
	}
	return sections, texts
}

func (s *section) add(t *testing.T, number int, line string) {
	t.Helper()
	if script, ok := strings.CutPrefix(line, "$ "); ok {
		s.commands = append(s.commands, documented{line: number, script: script + "\n"})
		return
	}
	require.NotEmpty(t, s.commands, "%s:%d: a console block begins with a command", runbook, number)
	last := &s.commands[len(s.commands)-1]
	if script, ok := strings.CutPrefix(line, "> "); ok && len(last.output) == 0 {
		last.script += script + "\n"
		return
	}
	last.output = append(last.output, line)
}

// TestRunbook runs the commands of docs/OPERATIONS.md as printed, each section in its own
// folder and its own network and process namespace, so the printed addresses are free.
// All commands must succeed. Each line of output in the document must match a line that
// the command prints, as [pattern] defines; the order is free, and the command may print more.
func TestRunbook(t *testing.T) {
	t.Parallel()
	sections, texts := readRunbook(t)
	require.Equal(t, textBlocks, texts, "blocks of the runbook that are not run")
	var start []documented
	runnable := map[string]bool{}
	for _, s := range sections {
		runnable[s.title] = len(s.commands) > 0
		if s.title == firstSection {
			start = s.commands
		}
	}
	for _, title := range requiredSections {
		require.True(t, runnable[title], "the section %q has no commands that run", title)
	}
	for _, s := range sections {
		if len(s.commands) == 0 {
			continue
		}
		t.Run(s.title, func(t *testing.T) {
			t.Parallel()
			var commands []documented
			if s.title != firstSection {
				for _, c := range start {
					commands = append(commands, documented{line: c.line, script: c.script})
				}
			}
			runDocumented(t, append(commands, s.commands...))
		})
	}
}

// repeatedly runs a command. Exit code 122 means that nothing has happened: on a busy
// machine an election may interfere, so the command is repeated.
const repeatedly = `echo '@@ begin %d'
documented() {
%s}
for n in $(seq 30); do documented; status=$?; [ $status = 122 ] || break; done
echo; echo "@@ end %d $status"
[ $status = 0 ] || exit 1
`

// runDocumented runs the commands in one shell and compares what they print.
func runDocumented(t *testing.T, commands []documented) {
	t.Helper()
	script := "ip link set lo up || exit 1\nexec 2>&1 < /dev/null\n"
	for i, c := range commands {
		script += fmt.Sprintf(repeatedly, i, c.script, i)
	}
	dir := t.TempDir()
	p := &process{t: t, exited: make(chan struct{})}
	p.cmd = exec.Command("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", script)
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(leased)+":"+os.Getenv("PATH"),
		"LEASED_HEARTBEAT_TIMEOUT=4s") // it also bounds a transfer of the leadership
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.WaitDelay = time.Second
	require.NoError(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.exited) }()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.exited
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
			for _, path := range logs {
				text, _ := os.ReadFile(path)
				t.Logf("%s:\n%s", filepath.Base(path), text)
			}
		}
	})
	limit := 10 * time.Minute // a section restarts members many times
	if end, ok := t.Deadline(); ok {
		limit = min(limit, time.Until(end)-20*time.Second)
	}
	p.codeWithin(limit)
	out := p.output.String()
	for i, c := range commands {
		_, rest, begun := strings.Cut(out, fmt.Sprintf("@@ begin %d\n", i))
		require.True(t, begun, "%s:%d: the command was not reached:\n%s", runbook, c.line, out)
		printed, rest, ended := strings.Cut(rest, fmt.Sprintf("\n@@ end %d ", i))
		status, _, _ := strings.Cut(rest, "\n")
		require.True(t, ended && status == "0", "%s:%d: exit status %q of\n%s\nIt printed:\n%s",
			runbook, c.line, status, c.script, printed)
		for n, line := range c.output {
			if !regexp.MustCompile("(?m)^" + pattern(line) + " *$").MatchString(printed) {
				t.Errorf("%s:%d: the document shows\n%s\nbut the command printed\n%s",
					runbook, c.line+strings.Count(c.script, "\n")+n, line, printed)
			}
		}
	}
}

// variable matches what differs between runs. In the document, each stands for any text of
// the same kind: a time, a duration, a number, a hash or an id in hexadecimal, the version of
// the program, and the role of a member, because any member may lead. Spaces stand for any number of spaces. A number
// after the words "exit code" is exact.
var variable = regexp.MustCompile(`exit code \d+|\d{4}-\d\d-\d\d[T ][0-9:.]+Z?|` +
	`\b(?:\d+(?:\.\d+)?(?:h|ms|m|us|µs|s|d))+\b|` +
	`\b[0-9a-f]*[0-9][0-9a-f]{7,}\b|\b\d[\d,.]*\b|\b(?:leader|follower)\b|\(devel\)| +|…`)

// pattern returns the regular expression that a line of output in the document stands for.
func pattern(line string) string {
	result, last := "", 0
	for _, m := range variable.FindAllStringIndex(line, -1) {
		result += regexp.QuoteMeta(line[last:m[0]])
		last = m[1]
		switch text := line[m[0]:m[1]]; {
		case strings.HasPrefix(text, "exit code "):
			result += text
		case text == "…":
			result += ".*"
		case text == "(devel)":
			result += `\S+`
		case text == "leader" || text == "follower":
			result += "(?:leader|follower)"
		case strings.Trim(text, " ") == "":
			result += " +"
		case strings.Contains(text, "-"):
			result += `\d{4}-\d\d-\d\d[T ][0-9:.]+Z?`
		case strings.Trim(text, "0123456789,.") == "":
			result += `[\d,.]+`
		case strings.Trim(text, "0123456789abcdef") == "" && len(text) >= 8:
			result += "[0-9a-f]+"
		default:
			result += `(?:\d+(?:\.\d+)?(?:h|ms|m|us|µs|s|d))+`
		}
	}
	return result + regexp.QuoteMeta(line[last:])
}

func TestRunbookPattern(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		document, printed string
		match             bool
	}{
		{"a  leader  yes  0  18 8dc9b4104330", "a     follower yes 27  19 0dc9b4104331", true},
		{"a  leader  yes", "a  candidate  yes", false},
		{"held for 4m10s", "held for 3.2s", true},
		{"held for 4m10s", "held forever", false},
		{"since 2026-11-16T02:30:58Z", "since 2027-01-01T00:00:00Z", true},
		{"exit code 122", "exit code 123", false},
		{"exit code 122", "exit code 122", true},
		{"last token 1, 1 locks", "last token 12, 3 locks", true},
		{"127.0.0.1:7420: ok", "127.0.0.1:7430: ok", true},
		{"127.0.0.1:7420: ok", "127.0.0.1:7430: not ok", false},
		{"saved …", "saved this", true},
		{"version (devel)", "version v1.2.3", true},
	} {
		got := regexp.MustCompile("^" + pattern(c.document) + "$").MatchString(c.printed)
		require.Equal(t, c.match, got, strconv.Quote(c.document)+" and "+strconv.Quote(c.printed))
	}
}
