// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/seed81659283/nodeagent/internal/authtest"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
)

// Prometheus may read metrics only.
func Example() {
	var apiServer authtest.Reviewer
	apiServer.AddToken("token", authenticationv1.UserInfo{Username: "prometheus"})
	apiServer.Allow("prometheus", "get metrics")

	access, err := auth.New(auth.Options{NodeName: "node-1", TokenReviewer: apiServer.Tokens(), AccessReviewer: apiServer.Access()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range []string{"/metrics/cadvisor", "/pods"} {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer token")
		_, refusal := access.Check(r)
		fmt.Println(path, refusal == nil)
	}
	// Output:
	// /metrics/cadvisor true
	// /pods false
}

// The handler of a program with the authorization of the node API.
func ExampleAccess_Handler() {
	access, err := auth.New(auth.Options{Anonymous: true, AlwaysAllow: true}) // in production: TokenReviewer or ClientCAs, and AccessReviewer
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := access.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 200 served
}
