// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"encoding/pem"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// Listen has the server listen on a socket of loopback, and returns a configuration for it: with TLS and HTTP/2, or, if plain is
// true, with HTTP/1.1. Each call makes a listener of its own, which is closed with the test.
func (s *Server) Listen(t testing.TB, plain bool) *rest.Config {
	t.Helper()
	listener := httptest.NewUnstartedServer(s)
	t.Cleanup(func() {
		s.CutAll()
		listener.CloseClientConnections()
		listener.Close()
	})
	if plain {
		listener.Start()
		return &rest.Config{Host: listener.URL}
	}
	listener.EnableHTTP2 = true
	listener.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listener.Certificate().Raw})
	return &rest.Config{Host: listener.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: "example.com"}}
}

// Close ends all requests and waits for those that came by Transport. The server goes on for new ones.
func (s *Server) Close() {
	s.CutAll()
	s.wg.Wait()
}
