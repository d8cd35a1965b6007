// Package signature signs fencing tokens and verifies the signatures, so that a
// gate accepts only tokens that the lock service has granted.
//
// Limits: a signature does not replace the fence. It proves that the service
// granted the token for a resource, not that the lease still lasts. A signed
// token is a bearer token: whoever has a copy can use it until it expires.
//
// Types, in reading order: [Signer], which the lock service has; [Verifier], which
// a gate has; [ParseSigner] and [ParsePublicKeys], which read their keys.
package signature
