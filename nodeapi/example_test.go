// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"fmt"
	"net/http/httptest"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodeapi"
)

// A server without a runtime, behind another authorization.
func Example() {
	server, err := nodeapi.New(nodeapi.Options{
		Insecure: true,
		Pods:     nodeapi.PodsFunc(func() []*corev1.Pod { return nil }),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range []string{"/healthz", "/pods", "/exec/default/web/nginx"} {
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, w.Code)
	}
	w := httptest.NewRecorder()
	server.Healthz().ServeHTTP(w, httptest.NewRequest("GET", "/pods", nil)) // for the port without authentication
	fmt.Println("healthz port:", w.Code)
	// Output:
	// /healthz 200
	// /pods 200
	// /exec/default/web/nginx 404
	// healthz port: 404
}
