// Package virtual runs the product in virtual time.
package virtual
