package proxy_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/storagegate/httpgate"
	"github.com/leased-project/leased/storagegate/httpgate/proxy"
)

func ExampleProxy() {
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("the service gets", r.Method, r.URL.Path)
	}))
	defer service.Close()
	upstream, err := url.Parse(service.URL)
	if err != nil {
		log.Fatal(err)
	}
	resource, err := httpgate.FromPath("/orders/{id}=orders/{id}")
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p, err := proxy.Open(proxy.Config{Upstream: upstream, Resource: resource, Journal: filepath.Join(dir, "journal.db"), Now: time.Now})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close(context.Background())
	front := httptest.NewServer(p)
	defer front.Close()

	for _, token := range []fencing.Token{34, 33} { // the newer holder, then the paused one
		request, err := http.NewRequest(http.MethodPut, front.URL+"/orders/42", strings.NewReader("paid"))
		if err != nil {
			log.Fatal(err)
		}
		httpgate.SetToken(request, token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(response.Status, httpgate.Check(response))
		response.Body.Close()
	}
	// Output:
	// the service gets PUT /orders/42
	// 200 OK <nil>
	// 412 Precondition Failed stale fencing token 33 for "orders/42": 34 has been admitted; the lease is lost, stop writing
}
