//go:build unix

package e2e

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// The recipes of docs/INTEGRATIONS.md for cron, systemd and Kubernetes. A job is paused with
// its guard, as a whole machine would be, another host runs it, and the first one continues:
// PostgreSQL refuses what it writes.
func TestRecipes(t *testing.T) {
	t.Parallel()
	host, port, err := net.SplitHostPort(testserver.Postgres(t).Addr)
	require.NoError(t, err)
	_, api := single(t)
	env := append(endpoint(api), "PGHOST="+host, "PGPORT="+port, "PGUSER=postgres",
		"PATH="+filepath.Dir(leased)+":/usr/bin:/bin")
	must(t, env, leased, "policy", "set", "*", "--mode=correctness", "--ttl=2m")
	must(t, env, "sh", "-c", `set -e; createdb shop; leased gate ddl --dialect postgres | psql -q shop
		psql -q shop -c 'CREATE TABLE accounts (balance int); CREATE TABLE report (at timestamptz, total int)'`)
	for kind, command := range recipes(t) {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			started, finish := filepath.Join(dir, "started"), filepath.Join(dir, "finish")
			report := `\! echo $LEASED_TOKEN > ` + started + `; until [ -e ` + finish + ` ]; do sleep 0.05; done` + "\n" +
				blocks(t, "sql", "docs/INTEGRATIONS.md")[0]
			require.NoError(t, os.WriteFile(filepath.Join(dir, "report.sql"), []byte(report), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "report.sh"), []byte("#!/bin/sh\n"+
				`psql shop -v token="$LEASED_TOKEN" -f `+dir+"/report.sql\n"), 0o700))
			local := strings.NewReplacer("/opt", dir, "/usr/local/bin/leased", "leased", "--at-least 1m", "")
			run := []string{"sh", "-c", local.Replace(command)}
			reports := func() string { return must(t, env, "psql", "-At", "shop", "-c", "SELECT count(*) FROM report") }
			before := reports()

			paused := start(t, env, run...)
			var token string
			eventually(t, func() bool {
				text, err := os.ReadFile(started)
				token = strings.TrimSpace(string(text))
				return err == nil && token != ""
			}, "for the job to begin")
			exits(t, 120, env, run...) // another host skips the job while it runs
			job := descendants(t, paused.cmd.Process.Pid)
			send(job, "", syscall.SIGSTOP)
			must(t, env, leased, "break", "job/report", "--token="+token)
			require.NoError(t, os.WriteFile(finish, nil, 0o600))
			must(t, env, run...)
			after := reports()
			require.NotEqual(t, before, after)

			send(job, "leased", syscall.SIGCONT) // the guard is later than the job
			paused.says("stale")
			require.Equal(t, after, reports())
			send(job, "", syscall.SIGCONT)
			paused.code()
		})
	}
}

// The recipe for Celery beat: the second instance waits, and begins when the first one is dead.
func TestCeleryBeatRunsOnce(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	must(t, endpoint(api), leased, "policy", "set", "*", "--mode=correctness", "--ttl=1m")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app.py"),
		[]byte("from celery import Celery, signals\napp = Celery(broker='memory://')\n"+
			"@signals.beat_init.connect\ndef ready(**_): print('beat is ready', flush=True)\n"), 0o600))
	beat := func(host string) *process {
		return start(t, append(endpoint(api), "PATH="+filepath.Dir(leased)+":/usr/bin:/bin"), "sh", "-c",
			"mkdir "+dir+"/"+host+"; cd "+dir+"/"+host+"; PYTHONPATH="+dir+" exec "+
				strings.TrimSpace(blocks(t, "sh", "docs/INTEGRATIONS.md")[0]))
	}
	first := beat("one")
	first.says("beat is ready") // Celery can hang if it is stopped while it starts
	second := beat("two")
	queued(t, endpoint(api), "celery/beat", 1)
	processes := descendants(t, first.cmd.Process.Pid)
	first.signal(syscall.SIGTERM)
	second.says("beat is ready")
	for pid, program := range processes {
		state, _ := call(t, nil, "ps", "-o", "stat=", "-p", strconv.Itoa(pid))
		if program != "leased" && !strings.HasPrefix(state, "Z") { // nobody may have waited for it
			require.Empty(t, state, "%s of the first instance is alive", program)
		}
	}
	second.signal(syscall.SIGTERM)
	second.code()
}

// recipes returns the commands of the page, as a shell runs them.
func recipes(t *testing.T) map[string]string {
	t.Helper()
	const page = "docs/INTEGRATIONS.md"
	commands := map[string]string{"cron": strings.Join(strings.Fields(blocks(t, "crontab", page)[0])[5:], " ")}
	_, exec, found := strings.Cut(blocks(t, "ini", page)[0], "ExecStart=")
	require.True(t, found)
	commands["systemd"] = strings.TrimSpace(exec)
	_, list, found := strings.Cut(blocks(t, "yaml", page)[0], "command: ")
	require.True(t, found)
	var words []string
	require.NoError(t, json.Unmarshal([]byte(list), &words))
	commands["kubernetes"] = strings.Join(words, " ")
	return commands
}

// descendants returns a process and those that it has started, with the names of their programs.
func descendants(t *testing.T, root int) map[int]string {
	t.Helper()
	list := must(t, nil, "ps", "-e", "-o", "pid=,ppid=,comm=")
	found := map[int]string{}
	for more := true; more; {
		more = false
		for line := range strings.Lines(list) {
			fields := strings.Fields(line)
			pid, err := strconv.Atoi(fields[0])
			require.NoError(t, err)
			parent, err := strconv.Atoi(fields[1])
			require.NoError(t, err)
			if found[pid] == "" && (pid == root || found[parent] != "") {
				found[pid], more = fields[2], true
			}
		}
	}
	return found
}

// send sends a signal to all processes except those of a program.
func send(processes map[int]string, except string, s syscall.Signal) {
	for pid, name := range processes {
		if name != except {
			_ = syscall.Kill(pid, s)
		}
	}
}
