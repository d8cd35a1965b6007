package devca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	day = 24 * time.Hour
	// caLifetime is the validity of a new CA.
	caLifetime = 3650 * day
	// backdated allows for machines whose clock is behind.
	backdated = time.Hour
)

// CA is a certificate authority in a folder.
type CA struct {
	dir     string
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	created bool
	now     time.Time
}

// Open loads the CA of a folder, or creates the folder and a CA if there is none.
// Certificates are valid from now on.
func Open(dir string, now time.Time) (*CA, error) {
	c := &CA{dir: dir, now: now}
	noCert, noKey := missing(c.CertFile()), missing(c.KeyFile())
	switch {
	case noCert && noKey:
		return c, c.create()
	case noKey:
		return nil, fmt.Errorf("%w: %s exists, but its key %s does not; give a folder with both, or an empty one", ErrCA,
			c.CertFile(), c.KeyFile())
	case noCert:
		return nil, fmt.Errorf("%w: %s exists, but its certificate %s does not; give a folder with both, or an empty one",
			ErrCA, c.KeyFile(), c.CertFile())
	}
	return c, c.load()
}

// CertFile returns the path of the CA's certificate.
func (c *CA) CertFile() string { return filepath.Join(c.dir, "ca.pem") }

// KeyFile returns the path of the CA's key.
func (c *CA) KeyFile() string { return filepath.Join(c.dir, "ca.key") }

// Created reports whether Open created the CA.
func (c *CA) Created() bool { return c.created }

func (c *CA) load() (err error) {
	if c.cert, c.key, err = readPair(c.CertFile(), c.KeyFile()); err != nil {
		return fmt.Errorf("%w: %w", ErrCA, err)
	}
	switch {
	case !c.cert.IsCA:
		return fmt.Errorf("%w: %s is not the certificate of a CA", ErrCA, c.CertFile())
	case c.now.After(c.cert.NotAfter):
		return fmt.Errorf("%w: %s expired on %s; make a new CA in another folder", ErrCA, c.CertFile(),
			c.cert.NotAfter.Format(time.DateOnly))
	}
	return nil
}

func (c *CA) create() (err error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("create the folder of the CA: %w", err)
	}
	if c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "leased development CA"}, IsCA: true,
		BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		NotBefore: c.now.Add(-backdated), NotAfter: c.now.Add(caLifetime)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &c.key.PublicKey, c.key)
	if err != nil {
		return fmt.Errorf("sign the CA: %w", err)
	}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	c.created = true
	if err := writeKey(c.KeyFile(), c.key); err != nil {
		return err
	}
	return writeCert(c.CertFile(), der)
}

// signed reports whether this CA signed a certificate.
func (c *CA) signed(cert *x509.Certificate) bool { return cert.CheckSignatureFrom(c.cert) == nil }
