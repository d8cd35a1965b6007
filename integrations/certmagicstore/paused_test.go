package certmagicstore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/internal/testserver"
)

// issuer signs every request, after it has called before.
type issuer struct{ before func() }

func (i issuer) IssuerKey() string { return "test" }

func (i issuer) Issue(_ context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	i.before()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: request.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, key)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

// manage returns certmagic with this storage.
func manage(storage certmagic.Storage, issuer certmagic.Issuer) *certmagic.Config {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{Logger: zap.NewNop(),
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil }})
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{issuer},
		Logger: zap.NewNop()})
	return config
}

// pausing pauses its process before it stores the certificate, when the key is stored. It
// records what was refused, because certmagic does not wrap errors.
type pausing struct {
	*server
	before  func()
	refused []string
}

func (p *pausing) Store(ctx context.Context, key string, value []byte) error {
	if strings.HasSuffix(key, ".crt") {
		p.before()
	}
	return p.record("store "+key, p.server.Store(ctx, key, value))
}

func (p *pausing) Delete(ctx context.Context, key string) error {
	return p.record("delete "+key, p.server.Delete(ctx, key))
}

func (p *pausing) record(call string, err error) error {
	if errors.Is(err, fencing.ErrStale) {
		p.refused = append(p.refused, call)
	}
	return err
}

// child obtains a certificate in a process of its own, which is stopped in the middle. It
// prints what was refused. Its exit code is 3 if certmagic fails.
func child() int {
	ctx := context.Background()
	s, stop, err := open(ctx, os.Getenv("SERVICE"), os.Getenv("DATABASE"), os.Getenv("PREFIX"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer stop()
	pause := map[string]func(){"issue": func() {}, "store": func() {}}
	pause[os.Getenv("PAUSE")] = testserver.AwaitResume
	storage := &pausing{server: s, before: pause["store"]}
	err = manage(storage, issuer{pause["issue"]}).ObtainCertSync(ctx, os.Getenv("DOMAIN"))
	fmt.Printf("%q\n%v\n", storage.refused, err)
	if err != nil {
		return 3
	}
	return 0
}

// A server is stopped while it obtains a certificate, another one obtains it, and the first
// one continues. What it stores is refused, and also that it deletes the key that it had
// stored, which the other one has replaced.
func TestPausedServerIsRefused(t *testing.T) {
	for pause, refused := range map[string]string{
		"issue": `["store certificates/test/DOMAIN/DOMAIN.key"]`,
		"store": `["store certificates/test/DOMAIN/DOMAIN.crt" "delete certificates/test/DOMAIN/DOMAIN.key"]`,
	} {
		t.Run(pause, func(t *testing.T) {
			t.Parallel()
			ctx, name := testserver.Context(t), fmt.Sprintf("%s-%x.example", pause, mathrand.Uint64()) // new in the table
			second := newServer(t)
			resume := testserver.PauseChild(t, "PAUSE="+pause, "SERVICE="+service.Get(t).Addr,
				"DATABASE="+database.Get(t).DSN, "PREFIX="+second.prefix, "DOMAIN="+name)
			second.lose(t, "issue_cert_"+name)
			require.NoError(t, manage(second, issuer{func() {}}).ObtainCertSync(ctx, name))
			keys := certmagic.StorageKeys
			load := func(key string) []byte {
				t.Helper()
				value, err := second.Load(ctx, key)
				require.NoError(t, err)
				return value
			}
			certificate := load(keys.SiteCert("test", name))

			output, code := resume()
			require.Equal(t, 3, code, output)
			require.Contains(t, output, strings.ReplaceAll(refused, "DOMAIN", name)+"\n")
			require.Equal(t, certificate, load(keys.SiteCert("test", name)))
			load(keys.SiteMeta("test", name))
			_, err := tls.X509KeyPair(certificate, load(keys.SitePrivateKey("test", name)))
			require.NoError(t, err, "the certificate and its key belong together")
		})
	}
}

// certmagic obtains, renews and deletes in the ordinary way.
func TestCertmagic(t *testing.T) {
	t.Parallel()
	ctx, s := testserver.Context(t), newServer(t)
	config := manage(s, issuer{func() {}})
	require.NoError(t, config.ObtainCertAsync(ctx, "ordinary.example"))
	key := certmagic.StorageKeys.SiteCert("test", "ordinary.example")
	first, err := s.Load(ctx, key)
	require.NoError(t, err)
	require.NoError(t, config.RenewCertAsync(ctx, "ordinary.example", true))
	second, err := s.Load(ctx, key)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.Positive(t, s.Gate().Counts().Admitted, "the writes carried tokens")
	require.NoError(t, certmagic.CleanStorage(ctx, s, certmagic.CleanStorageOptions{Logger: zap.NewNop(),
		OCSPStaples: true, ExpiredCerts: true}))
	require.True(t, s.Exists(ctx, "last_clean.json"))
	require.True(t, s.Exists(ctx, key))
}
