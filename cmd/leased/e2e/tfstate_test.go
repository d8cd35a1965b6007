//go:build unix

package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/internal/testserver"
)

// tfstateGate is a running gate for the states of Terraform.
type tfstateGate struct {
	*process
	url string
}

var tfstateListens = regexp.MustCompile(`gate tfstate: listen (\S+)\n`)

func startTFState(t *testing.T, api string, args ...string) tfstateGate {
	t.Helper()
	p := start(t, endpoint(api), append([]string{leased, "gate", "tfstate", "--listen=127.0.0.1:0"}, args...)...)
	p.says("gate tfstate: listen ")
	return tfstateGate{p, tfstateListens.FindStringSubmatch(p.output.String())[1] + "/prod/network"}
}

// do sends a request and returns the status and the body.
func (g tfstateGate) do(method, query, body string) (int, string) {
	g.t.Helper()
	request, err := http.NewRequestWithContext(testserver.Context(g.t), method, g.url+query, strings.NewReader(body))
	require.NoError(g.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(g.t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(g.t, err)
	return response.StatusCode, string(content)
}

func (g tfstateGate) must(method, query, body string) string {
	g.t.Helper()
	status, content := g.do(method, query, body)
	require.Equal(g.t, http.StatusOK, status, content)
	return content
}

// A gate that holds the lock of a run is stopped, an operator unlocks the state by force through
// another gate, and another run writes it. The gate continues with a request of the first run, which it
// refuses.
func TestPausedTFStateGate(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	folder := filepath.Join(t.TempDir(), "states")
	first, second := startTFState(t, api, "--files="+folder), startTFState(t, api, "--files="+folder)
	first.must("LOCK", "", `{"ID":"one","Who":"anna@laptop","Operation":"OperationTypeApply"}`)
	require.Contains(t, must(t, endpoint(api), leased, "inspect", "tfstate/prod/network", "-o", "json"), "anna@laptop")
	first.stop()
	type answer struct {
		status int
		body   string
	}
	late := make(chan answer, 1)
	go func() {
		status, body := first.do("POST", "?ID=one", `{"serial":1}`)
		late <- answer{status, body}
	}()
	second.must("UNLOCK", "", `{"ID":"one"}`)
	second.must("LOCK", "", `{"ID":"two","Who":"bert@laptop","Operation":"OperationTypeApply"}`)
	second.must("POST", "?ID=two", `{"serial":2}`)
	first.signal(syscall.SIGCONT)
	got := testserver.Receive(t, late)
	require.Equal(t, http.StatusConflict, got.status, got.body)
	require.Equal(t, `{"serial":2}`, first.must("GET", "", ""))
	second.must("UNLOCK", "", `{"ID":"two"}`)

	info, err := os.Stat(folder)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestTFStateFlags(t *testing.T) {
	t.Parallel()
	users := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(users, []byte("# users\nanna\n"), 0o600))
	twice := filepath.Join(t.TempDir(), "twice")
	require.NoError(t, os.WriteFile(twice, []byte("anna:old\nbert:x\nanna:new\n"), 0o600))
	for want, args := range map[string][]string{
		"twice:3 names the user anna again":        {"--files", "x", "--users-file", twice},
		"give one of --files, --s3 and --database": nil,
		"to say where the states are kept":         {"--files", "x", "--s3", "y"},
		"is not a loopback address":                {"--files", "x", "--listen", "0.0.0.0:0"},
		"must be given together":                   {"--files", "x", "--listen-cert", "y"},
		"users:2 is not USER:PASSWORD":             {"--files", "x", "--users-file", users},
		"--database: ":                             {"--database", "postgres://%zz"},
	} {
		code, out, stderr := runApart(t, append([]string{"gate", "tfstate"}, args...)...)
		require.Equal(t, 2, code, stderr)
		require.Empty(t, out)
		require.Contains(t, stderr, want)
	}
	env := []string{"LEASED_POSTGRES=postgres://db", "LEASED_ENDPOINT=127.0.0.1:1"}
	p := start(t, env, leased, "gate", "tfstate", "--files", filepath.Join(t.TempDir(), "states"))
	require.Equal(t, 2, p.code())
	require.Contains(t, p.output.String(), "needs a lock service, and LEASED_POSTGRES")
}

// Users and TLS.
func TestTFStateUsers(t *testing.T) {
	t.Parallel()
	_, api := single(t)
	dir := t.TempDir()
	users := filepath.Join(dir, "users")
	require.NoError(t, os.WriteFile(users, []byte("# users\nanna:secret:with:colons\n"), 0o600))
	must(t, nil, leased, "certs", "--dir", dir, "--member", "gate")
	p := start(t, endpoint(api), leased, "gate", "tfstate", "--listen=127.0.0.1:0", "--files="+filepath.Join(dir,
		"states"), "--users-file="+users,
		"--listen-cert="+dir+"/gate/cert.pem", "--listen-key="+dir+"/gate/key.pem")
	p.says("gate tfstate: listen https://")
	url := tfstateListens.FindStringSubmatch(p.output.String())[1] + "/prod"
	ca := []string{"curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", dir + "/gate/ca.pem"}
	require.Equal(t, "401", must(t, nil, append(ca, url)...))
	require.Equal(t, "404", must(t, nil, append(ca, "-u", "anna:secret:with:colons", url)...))
	require.Equal(t, "401", must(t, nil, append(ca, "-u", "anna:wrong", url)...))
	p.says("user=anna address=127.0.0.1:")
	require.Regexp(t, `(?m)^time=\S+ level=WARN msg="refused a user: `, p.output.String())
}

// A gate that could not unlock does not lock, and a gate that may not break the locks of others says so.
func TestTFStateRights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	users := filepath.Join(dir, "users.yaml")
	rights := map[string][]string{"breaker": {"break"}, "blind": {"acquire", "break"}, "reader": {"acquire", "read"},
		"full": {"acquire", "read", "break"}}
	for name, has := range rights {
		var allow []string
		for _, right := range has {
			allow = append(allow, "--allow="+right+":tfstate/*")
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(addUser(t, users, name, allow...)), 0o600))
	}
	_, api := single(t, "--users="+users)
	gates := map[string]tfstateGate{}
	for name := range rights {
		gates[name] = startTFState(t, api, "--files="+filepath.Join(dir, "states"), "--secret-file="+filepath.Join(dir, name))
	}
	refused := func(name, method, id, right string) {
		t.Helper()
		status, body := gates[name].do(method, "", `{"ID":"`+id+`"}`)
		require.Equal(t, http.StatusForbidden, status, body)
		require.Contains(t, body, right)
	}
	refused("breaker", "LOCK", "one", "lacks the right acquire")
	refused("blind", "LOCK", "two", "lacks the right read")
	gates["reader"].must("LOCK", "", `{"ID":"three"}`) // two was released
	gates["full"].must("UNLOCK", "", `{"ID":"three"}`)
	gates["full"].must("LOCK", "", `{"ID":"four"}`)
	refused("reader", "UNLOCK", "four", "the right to break")
	gates["full"].must("UNLOCK", "", `{"ID":"four"}`)
	gates["reader"].must("LOCK", "", `{"ID":"five"}`)
	gates["reader"].must("UNLOCK", "", `{"ID":"five"}`)
}
