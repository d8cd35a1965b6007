package auth

import "net/http"

// AuthenticateHTTP returns the request with the context of its user. The caller
// must call done. A request that another member forwarded is authenticated too,
// since anyone can set the header that marks it.
func (u *Users) AuthenticateHTTP(r *http.Request) (authenticated *http.Request, done func(), err error) {
	if public[r.Method+" "+r.URL.Path] {
		return r, func() {}, nil
	}
	ctx, done, err := u.authenticate(r.Context(), r.Header.Get("Authorization"))
	if err != nil {
		return nil, nil, err
	}
	return r.WithContext(ctx), done, nil
}
