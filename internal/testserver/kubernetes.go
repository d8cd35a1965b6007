package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// StartEtcd starts an etcd of one member. Addr is the address of its clients.
func StartEtcd(program string) (s *Server, err error) {
	sp, err := newSpec("etcd")
	if err != nil {
		return nil, err
	}
	defer removeUnless(&s, sp.dir)
	peer, _, err := freeAddr()
	if err != nil {
		return nil, err
	}
	sp.program, sp.answers = program, serves("/health")
	sp.args = []string{"--data-dir", filepath.Join(sp.dir, "data"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", "http://" + sp.addr, "--advertise-client-urls", "http://" + sp.addr,
		"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
		"--initial-cluster", "default=http://" + peer}
	return launch(sp)
}

// StartKubernetes starts a kube-apiserver on an etcd, without controllers. Addr is its
// HTTPS address. Each user signs in with its name as the bearer token, and may do
// everything.
func StartKubernetes(program string, etcd *Server, users ...string) (s *Server, err error) {
	sp, err := newSpec("kubernetes")
	if err != nil {
		return nil, err
	}
	defer removeUnless(&s, sp.dir)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	keyFile, tokenFile := filepath.Join(sp.dir, "key.pem"), filepath.Join(sp.dir, "tokens.csv")
	var tokens strings.Builder
	for i, user := range users {
		fmt.Fprintf(&tokens, "%s,%s,%d,system:masters\n", user, user, i)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(keyFile, block, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(tokenFile, []byte(tokens.String()), 0o600); err != nil {
		return nil, err
	}
	sp.args = []string{"--etcd-servers=http://" + etcd.Addr, "--bind-address=127.0.0.1", "--secure-port=" + sp.port,
		"--cert-dir=" + sp.dir, "--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC",
		"--token-auth-file=" + tokenFile, "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + keyFile, "--service-account-signing-key-file=" + keyFile,
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"}
	unverified := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	sp.program, sp.answers = program, gets(unverified, "https", "/readyz")
	return launch(sp)
}
