// Package devca makes a certificate authority in a folder, and certificates for
// members and clients, for development and evaluation.
//
// It cannot revoke a certificate, and the CA's key is stored unencrypted beside the
// certificates: use your own CA in production, with the names described at
// [CA.Member] and [CA.Client].
//
// The folder has ca.pem and ca.key, and a folder for each name with all that one
// machine needs: ca.pem, cert.pem and key.pem. Files, in reading order:
//
//   - ca.go: [CA], and how it is created or loaded.
//   - issue.go: the certificates of members and clients.
//   - files.go: reading and writing PEM files.
//   - errors.go: what a caller can act on.
package devca
