// Package auth authenticates the callers of the service, by a secret or by a client
// certificate, and checks their rights.
//
// It does not know who owns a lease: the services compare [UserName] with the owner.
// Without [Users] everyone may make every call.
//
// Files, in reading order:
//
//   - rules.go: [Right], [Rule] and [Rules].
//   - users.go: [User], [Users], and the user of a context.
//   - methods.go: what each method requires of its caller.
//   - check.go: [Check], for a call, and [Allow], for a lock.
//   - certificate.go: the client certificate of a connection.
//   - calls.go: authentication of gRPC and HTTP calls.
package auth
