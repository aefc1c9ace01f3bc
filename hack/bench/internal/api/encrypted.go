// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/url"
	"sync"
	"time"
)

// encrypted is a way through a proxy with TLS that copies bytes between a client and the runtime. It measures the cost of any
// server with TLS in front of the runtime.
type encrypted struct {
	way
	listener net.Listener
	tasks    sync.WaitGroup

	mu     sync.Mutex // guards target
	target string     // of the newest URL
}

func newEncrypted(w way) (*encrypted, error) {
	certificate, err := selfSigned()
	if err != nil {
		return nil, err
	}
	// HTTP/2 is not offered, as clients do not ask for it.
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		return nil, err
	}
	e := &encrypted{way: w, listener: l}
	e.tasks.Go(e.serve)
	return e, nil
}

// Close closes the proxy, after its connections have ended.
func (e *encrypted) Close() error {
	err := e.listener.Close()
	e.tasks.Wait()
	return err
}

func (e *encrypted) serve() {
	for {
		client, err := e.listener.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		target := e.target
		e.mu.Unlock()
		e.tasks.Go(func() { join(client, target) })
	}
}

// join copies in both directions until both sides are closed.
func join(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return // the client sees the end
	}
	defer server.Close()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	_, _ = io.Copy(client, server)
	_ = client.Close()
	up.Wait()
}

// proxyURL returns the URL of the proxy for a URL of the runtime.
func (e *encrypted) proxyURL(location string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	u, err := url.Parse(location)
	if err != nil {
		return "", err
	}
	e.mu.Lock()
	e.target = u.Host
	e.mu.Unlock()
	u.Scheme, u.Host = "https", e.listener.Addr().String()
	return u.String(), nil
}

func (e *encrypted) exec(ctx context.Context, stdin bool, command ...string) (string, error) {
	return e.proxyURL(e.way.exec(ctx, stdin, command...))
}

func (e *encrypted) forward(ctx context.Context) (string, error) {
	return e.proxyURL(e.way.forward(ctx))
}

// selfSigned returns a self-signed certificate.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
