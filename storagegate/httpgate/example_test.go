package httpgate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/callgate"
	"github.com/leased-project/leased/storagegate/httpgate"
)

func ExampleGate() {
	resource, err := httpgate.FromPath("/orders/{id}=orders/{id}")
	if err != nil {
		panic(err)
	}
	gate, err := httpgate.New(callgate.Memory(fencing.Rule{}), resource)
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(gate.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Println("written")
	})))
	defer server.Close()
	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		request, err := http.NewRequest(http.MethodPut, server.URL+"/orders/42", strings.NewReader("paid"))
		if err != nil {
			panic(err)
		}
		httpgate.SetToken(request, token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			panic(err)
		}
		fmt.Println(response.Status, httpgate.Check(response))
		response.Body.Close()
	}
	// Output:
	// written
	// 200 OK <nil>
	// 412 Precondition Failed stale fencing token 33 for "orders/42": 34 has been admitted; the lease is lost, stop writing
}
