package devca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/leased-project/leased/raftstore/transport"
)

// label matches a part of a host name between two dots.
const label = `[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?`

var (
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)
	hostForm = regexp.MustCompile(`^(\*\.)?` + label + `(\.` + label + `)*$`)
)

// localHosts are in the certificate of every member, for commands on its machine.
var localHosts = []string{"localhost", "127.0.0.1", "::1"}

// Issued is the certificate of a member or a client, and its files.
type Issued struct {
	Name                      string
	CAFile, CertFile, KeyFile string
	// Renewed is true if the certificate replaces one with the same key.
	Renewed bool
	Hosts   []string // of a member
	Expires time.Time
}

// Options are the options of a certificate.
type Options struct {
	// Lifetime is the validity from now on. It ends at the latest with the validity of the CA.
	Lifetime time.Duration
	// Force replaces an existing key and a certificate of another CA.
	Force bool
}

// Member makes a certificate for a member, for both sides of connections. It has the
// URI leased://member/ID and is valid for the id, this machine, and the given hosts. A
// renewed certificate keeps its hosts if none are given.
func (c *CA) Member(id string, hosts []string, o Options) (Issued, error) {
	for _, host := range hosts {
		if net.ParseIP(host) == nil && !hostForm.MatchString(host) {
			return Issued{}, fmt.Errorf("%w: host %q of member %q is neither a host name nor an IP address", ErrName, host, id)
		}
	}
	template := &x509.Certificate{URIs: []*url.URL{transport.MemberURI(id)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	return c.issue(id, template, o, func(old *x509.Certificate) {
		if len(hosts) == 0 && old != nil {
			hosts = hostsOf(old)
		}
		if hostForm.MatchString(id) {
			hosts = append([]string{id}, hosts...)
		}
		addHosts(template, append(hosts, localHosts...))
	})
}

// Client makes a certificate for a client of the API. Its common name is the user's,
// and it is not valid for a server or a member.
func (c *CA) Client(name string, o Options) (Issued, error) {
	template := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	return c.issue(name, template, o, func(*x509.Certificate) {})
}

// issue completes a template, signs it and writes the files. prepare gets the
// certificate that is renewed, or nil.
func (c *CA) issue(name string, template *x509.Certificate, o Options,
	prepare func(old *x509.Certificate)) (Issued, error) {
	if !nameForm.MatchString(name) || name == "ca.pem" || name == "ca.key" {
		return Issued{}, fmt.Errorf("%w: %q must have 1 to 64 characters (letters, digits, . _ @ -) and start with a "+
			"letter or digit", ErrName, name)
	}
	dir := filepath.Join(c.dir, name)
	i := Issued{Name: name, CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"),
		KeyFile: filepath.Join(dir, "key.pem")}
	old, key, err := c.existing(i, len(template.URIs) > 0, o.Force)
	if err != nil {
		return Issued{}, err
	}
	prepare(old)
	i.Renewed, i.Hosts = key != nil, hostsOf(template)
	template.Subject, template.KeyUsage = pkix.Name{CommonName: name}, x509.KeyUsageDigitalSignature
	template.NotBefore, template.NotAfter = c.now.Add(-backdated), c.now.Add(o.Lifetime)
	if template.NotAfter.After(c.cert.NotAfter) {
		template.NotAfter = c.cert.NotAfter
	}
	i.Expires = template.NotAfter
	if key == nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return Issued{}, err
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	if err != nil {
		return Issued{}, fmt.Errorf("sign the certificate of %q: %w", name, err)
	}
	return i, c.write(i, key, der)
}

// write writes the files of a certificate.
func (c *CA) write(i Issued, key *ecdsa.PrivateKey, cert []byte) error {
	if err := os.MkdirAll(filepath.Dir(i.KeyFile), 0o700); err != nil {
		return fmt.Errorf("create the folder of %q: %w", i.Name, err)
	}
	if !i.Renewed {
		if err := writeKey(i.KeyFile, key); err != nil {
			return err
		}
	}
	if err := writeCert(i.CertFile, cert); err != nil {
		return err
	}
	return writeCert(i.CAFile, c.cert.Raw)
}

// existing returns the certificate and the key that issue renews, or nil for both. It
// refuses files that this CA has not made for this purpose, unless force is true.
func (c *CA) existing(i Issued, member, force bool) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	if missing(i.CertFile) && missing(i.KeyFile) {
		return nil, nil, nil
	}
	cert, key, err := readPair(i.CertFile, i.KeyFile)
	if force {
		return readCert(i.CertFile), nil, nil // the key may be missing; the hosts are kept
	}
	refuse := func(why string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
		return nil, nil, fmt.Errorf("%w: %s; move the folder away, or replace the key and the certificate with --force",
			ErrExists, why)
	}
	switch {
	case err != nil:
		return refuse(err.Error())
	case !c.signed(cert):
		return refuse(i.CertFile + " was signed by another CA")
	case member && !transport.Names(cert, i.Name):
		return refuse(i.CertFile + " is the certificate of a client, not of a member")
	case !member && len(transport.MemberIDs(cert)) > 0:
		return refuse(i.CertFile + " is the certificate of a member, not of a client")
	}
	return cert, key, nil
}

// addHosts adds names and IP addresses to a template, each once.
func addHosts(template *x509.Certificate, hosts []string) {
	for _, host := range hosts {
		ip := net.ParseIP(host)
		switch {
		case ip == nil && !slices.Contains(template.DNSNames, host):
			template.DNSNames = append(template.DNSNames, host)
		case ip != nil && !slices.ContainsFunc(template.IPAddresses, ip.Equal):
			template.IPAddresses = append(template.IPAddresses, ip)
		}
	}
}

func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}
