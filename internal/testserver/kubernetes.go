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
func StartEtcd(program string) (*Server, error) {
	return start("etcd", nil, func(s *Server) error {
		peers, err := FreeAddresses(1)
		if err != nil {
			return err
		}
		client, peer := "http://"+s.Addr, "http://"+peers[0]
		s.answers = serves("/health")
		s.Args = []string{program, "--data-dir", filepath.Join(s.Dir, "data"), "--unsafe-no-fsync", "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer}
		return nil
	})
}

// StartKubernetes starts a kube-apiserver on an etcd, without controllers. Addr is its
// HTTPS address. Each user signs in with its name as the bearer token, and may do
// everything.
func StartKubernetes(program string, etcd *Server, users ...string) (*Server, error) {
	return start("kubernetes", nil, func(s *Server) error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return err
		}
		keyFile, tokenFile := filepath.Join(s.Dir, "key.pem"), filepath.Join(s.Dir, "tokens.csv")
		var tokens strings.Builder
		for i, user := range users {
			fmt.Fprintf(&tokens, "%s,%s,%d,system:masters\n", user, user, i)
		}
		block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
		if err := os.WriteFile(keyFile, block, 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(tokenFile, []byte(tokens.String()), 0o600); err != nil {
			return err
		}
		s.Args = []string{program, "--etcd-servers=http://" + etcd.Addr, "--bind-address=127.0.0.1",
			"--secure-port=" + portOf(s.Addr), "--cert-dir=" + s.Dir, "--service-cluster-ip-range=10.0.0.0/24",
			"--authorization-mode=RBAC", "--token-auth-file=" + tokenFile,
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + keyFile, "--service-account-signing-key-file=" + keyFile,
			"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"}
		unverified := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		s.answers = gets(unverified, "https", "/readyz")
		return nil
	})
}
