// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"encoding/pem"
	"net/http/httptest"

	"k8s.io/client-go/rest"
)

// Listen opens a listener on the loopback interface, and returns a client config for it. The listener uses TLS with HTTP/2.
// If plain is true, it uses HTTP/1.1 without TLS. stop closes the listener and all connections.
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

// Close disconnects all requests in flight, and waits until the server has handled the requests of [Server.Transport]. The server
// remains usable.
func (s *Server) Close() {
	s.DisconnectAll()
	s.wg.Wait()
}
