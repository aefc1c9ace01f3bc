// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"encoding/pem"
	"net/http/httptest"

	"k8s.io/client-go/rest"
)

// Listen listens on a socket of loopback, and returns a configuration for it: with TLS and HTTP/2, or, if plain is true, with HTTP/1.1. Each
// call opens a listener of its own, which stop closes.
func (s *Server) Listen(plain bool) (config *rest.Config, stop func()) {
	listener := httptest.NewUnstartedServer(s)
	stop = func() {
		s.DisconnectAll()
		listener.CloseClientConnections()
		listener.Close()
	}
	if plain {
		listener.Start()
		return &rest.Config{Host: listener.URL}, stop
	}
	listener.EnableHTTP2 = true
	listener.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listener.Certificate().Raw})
	return &rest.Config{Host: listener.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: "example.com"}}, stop
}

// Close ends all requests and waits for those that came by Transport. The server goes on for new ones.
func (s *Server) Close() {
	s.DisconnectAll()
	s.wg.Wait()
}
