//go:build unix

package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/storagegate/httpgate"
)

// newKey makes a signing key and returns its public key.
func newKey(t *testing.T, path string) string {
	t.Helper()
	code, public, stderr := runApart(t, "keys", "new", path)
	require.Zero(t, code, stderr)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	return public
}

// putSigned writes through a gate proxy with a text as its token.
func putSigned(t *testing.T, url, text string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/orders/42", strings.NewReader("x"))
	require.NoError(t, err)
	httpgate.SetSignedToken(r, text)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	return httpgate.Check(response)
}

// The key of the members and the gates is rotated while a holder writes.
func TestSigningKeyRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	oldPublic, newPublic := newKey(t, file("old.pem")), newKey(t, file("new.pem"))
	require.NoError(t, os.Symlink("old.pem", file("signing.pem")))
	p, api := single(t, "--signing-key-file="+file("signing.pem"))
	env := endpoint(api)

	require.NoError(t, os.WriteFile(file("gate.pem"), []byte(oldPublic), 0o600))
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	proxy := start(t, nil, leased, "gate", "proxy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream",
		upstream.URL,
		"--journal", file("journal.db"), "--resource-path", "/orders/{id}=orders/{id}", "--verify-keys", file("gate.pem"))
	proxy.says("admin http://")
	url := strings.Fields(proxy.output.String())[3]
	setKeys := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file("gate.pem"), []byte(text), 0o600))
		proxy.reload("verifies signatures of")
	}

	var lease struct {
		Token       fencing.Token
		SignedToken string
	}
	require.NoError(t, json.Unmarshal([]byte(must(t, env, leased, "acquire", "orders/42", "--ttl=1h", "--signed", "-o",
		"json")), &lease))
	require.NoError(t, putSigned(t, url, lease.SignedToken))
	require.ErrorIs(t, putSigned(t, url, lease.Token.String()), fencing.ErrInvalidToken)
	require.ErrorIs(t, putSigned(t, url, fencing.MaxToken.String()), fencing.ErrInvalidToken)

	setKeys(oldPublic + newPublic) // first the gates
	require.NoError(t, os.Remove(file("signing.pem")))
	require.NoError(t, os.Symlink("new.pem", file("signing.pem")))
	p.reload("signing tokens") // then the members
	fresh := strings.TrimSpace(must(t, env, leased, "sign", "orders/42", "--token="+lease.Token.String()))
	require.NotEqual(t, strings.Split(lease.SignedToken, ".")[1], strings.Split(fresh, ".")[1], "another key id")
	require.NoError(t, putSigned(t, url, fresh))
	require.NoError(t, putSigned(t, url, lease.SignedToken), "old signatures are valid until the old key is removed")

	require.NoError(t, os.WriteFile(file("gate.pem"), []byte("no key"), 0o600))
	proxy.signal(syscall.SIGHUP)
	proxy.says("the old keys stay in effect")
	require.NoError(t, putSigned(t, url, fresh))
	setKeys(newPublic) // at last the gates again
	require.NoError(t, putSigned(t, url, fresh))
	require.ErrorContains(t, putSigned(t, url, lease.SignedToken), "unknown signing key")

	require.NoError(t, os.WriteFile(file("new.pem"), []byte("broken"), 0o600))
	p.reload("reload failed")
	require.NotEmpty(t, must(t, env, leased, "sign", "orders/42", "--token="+lease.Token.String()),
		"the old key stays in effect")
}

func TestSignedTokenOfACommand(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "signing.pem")
	public := newKey(t, key)
	_, api := single(t, "--signing-key-file="+key, "--signature-ttl=5m")
	out := must(t, endpoint(api), leased, "run", "nightly", "--signed", "-q", "--", "sh", "-c",
		`echo "$LEASED_TOKEN $LEASED_SIGNED_TOKEN"`)
	number, text, _ := strings.Cut(strings.TrimSpace(out), " ")
	keys, err := signature.ParsePublicKeys([]byte(public))
	require.NoError(t, err)
	v, err := signature.NewVerifier(time.Now, keys...)
	require.NoError(t, err)
	token, err := v.Verify("nightly", text)
	require.NoError(t, err)
	require.Equal(t, number, token.String())
	out, code := call(t, endpoint(api), leased, "sign", "nightly", "--token="+number)
	require.Equal(t, 121, code, "the lease has ended: %s", out)
}

func TestKeysCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := filepath.Join(dir, "signing.pem")
	public := newKey(t, key)
	require.Contains(t, public, "-----BEGIN PUBLIC KEY-----")
	code, again, _ := runApart(t, "keys", "public", key)
	require.Zero(t, code)
	require.Equal(t, public, again)
	code, digits, _ := runApart(t, "keys", "public", "--hex", key)
	require.Zero(t, code)
	require.Regexp(t, `^[0-9a-f]{64}\n$`, digits)
	code, _, stderr := runApart(t, "keys", "new", key)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "never replaced")
	code, _, stderr = runApart(t, "keys", "public", filepath.Join(dir, "none.pem"))
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "none.pem")

	_, api := single(t) // without a key
	out, code := call(t, endpoint(api), leased, "acquire", "a", "--signed")
	require.Equal(t, 124, code, out)
	require.Contains(t, out, "signing-key-file")
	require.Contains(t, must(t, endpoint(api), leased, "acquire", "a"), "correctness", "the first lease was released")
}
