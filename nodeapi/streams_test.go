// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/seed81659283/nodeagent/internal/authtest"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
)

// Types and flags of HTTP/2 frames, RFC 9113 section 6.
const (
	frameHeaders, frameSettings   = 1, 4
	flagEndStream, flagEndHeaders = 1, 4
	hpackGET, hpackHTTPS          = 0x82, 0x87
)

// h2frame returns an HTTP/2 frame.
func h2frame(kind, flags byte, stream uint32, payload []byte) []byte {
	f := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(f, stream), payload...)
}

// hpackText encodes a string of at most 4 KiB without Huffman codes, RFC 7541 section 5.2.
func hpackText(text string) []byte {
	if len(text) < 127 {
		return append([]byte{byte(len(text))}, text...)
	}
	rest := len(text) - 127
	return append([]byte{127, byte(rest) | 128, byte(rest >> 7)}, text...)
}

// header encodes a header; 0x40 puts it into the dynamic table, 0 does not.
func header(kind byte, name, value string) []byte {
	return append(append([]byte{kind}, hpackText(name)...), hpackText(value)...)
}

// flood opens connections without valid credentials and does not read. Each has several streams, whose headers refer
// repeatedly to one header of 4,000 bytes.
func flood(t *testing.T, address string, connections, streams, references int) []net.Conn {
	t.Helper()
	all := make([]net.Conn, connections)
	for i := range all {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		require.NoError(t, err)
		all[i] = c
		out := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), h2frame(frameSettings, 0, 0, nil)...)
		for n := range streams {
			block := []byte{hpackGET, hpackHTTPS}
			block = append(block, header(0, ":path", "/pods")...)
			block = append(block, header(0, ":authority", "node")...)
			block = append(block, header(0, "authorization", fmt.Sprintf("Bearer bad-%d-%d", i, n))...)
			if n == 0 {
				block = append(block, header(0x40, "a", strings.Repeat("x", 4000))...)
			}
			for range references {
				block = append(block, 0x80|62)
			}
			out = append(out, h2frame(frameHeaders, flagEndStream|flagEndHeaders, uint32(2*n+1), block)...)
		}
		_, _ = c.Write(out) // the server may have closed the connection
	}
	return all
}

// Streams without valid credentials need bounded memory and goroutines while the API server hangs. After their connections
// are closed none remains. An authenticated client is served meanwhile.
func TestStreamsWithoutCredentialsAreBounded(t *testing.T) {
	for _, references := range []int{3, 15} { // below and above the limit of headers
		t.Run(fmt.Sprintf("%d KiB of headers", references*4), func(t *testing.T) {
			reviewer := new(authtest.Reviewer)
			reviewer.AddToken("good", authenticationv1.UserInfo{Username: "bob"})
			access, err := auth.New(auth.Options{TokenReviewer: reviewer.Tokens(), AlwaysAllow: true, Timeout: time.Minute})
			require.NoError(t, err)
			o := newOneContainer(t, oldLine)
			s := newServer(t, nodeapi.Options{Pods: o, Runtime: o, Access: access})
			ca := authtest.NewAuthority(t, "ca")
			pair := ca.Sign(t, x509.Certificate{Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
			config, err := nodeapi.TLSConfig(nodeapi.TLSOptions{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }})
			require.NoError(t, err)
			address, _ := serveListener(t, s, s.Handler(), config)
			client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}}
			defer client.CloseIdleConnections()
			get := func() {
				t.Helper()
				r, err := http.NewRequest(http.MethodGet, "https://"+address+"/pods", nil)
				require.NoError(t, err)
				r.Header.Set("Authorization", "Bearer good")
				response, err := client.Do(r)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
				require.Equal(t, http.StatusOK, response.StatusCode)
				require.Equal(t, 2, response.ProtoMajor)
			}
			get()
			reviewer.SetHang(true)
			goroutines, before := runtime.NumGoroutine(), memoryInUse()
			const connections = 20
			all := flood(t, address, connections, 100, references)
			time.Sleep(2 * time.Second)
			held, running := max(memoryInUse(), before)-before, runtime.NumGoroutine()-goroutines
			t.Logf("%d KiB and %d goroutines", held>>10, running)
			assert.Less(t, held, uint64(16<<20), "memory of both ends")
			assert.Less(t, running, 64+3*connections+20)
			get()
			for _, c := range all {
				require.NoError(t, c.Close())
			}
			start := time.Now()
			require.True(t, eventually(func() bool { return runtime.NumGoroutine() <= goroutines+2 }), "no goroutine of a stream remains")
			assert.Less(t, time.Since(start), 5*time.Second)
			get()
		})
	}
}

// Too large request headers are refused in HTTP/1.1 and HTTP/2.
func TestTooLargeHeadersAreRefused(t *testing.T) {
	s := newServer(t, nodeapi.Options{})
	address, _ := serveListener(t, s, s.Handler(), nil)
	for size, code := range map[int]int{15 << 10: http.StatusOK, 32 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		r, err := http.NewRequest(http.MethodGet, "http://"+address+"/healthz", nil)
		require.NoError(t, err)
		r.Header.Set("X-Large", strings.Repeat("x", size))
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, code, response.StatusCode)
	}
}
