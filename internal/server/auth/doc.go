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
//   - check.go: [Allow], and what else a call may require of its user. Package calls has
//     the table of what each call requires.
//   - certificate.go: the client certificate of a connection.
package auth
