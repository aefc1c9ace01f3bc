// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/authtest"
	"github.com/seed81659283/nodeagent/nodeapi"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
)

// oneContainer is a runtime with one container, whose log is a file.
type oneContainer struct {
	log     string
	running atomic.Bool
}

func newOneContainer(t *testing.T, lines string) *oneContainer {
	t.Helper()
	o := &oneContainer{log: filepath.Join(t.TempDir(), "0.log")}
	o.running.Store(true)
	require.NoError(t, os.WriteFile(o.log, []byte(lines), 0o600))
	return o
}

func (o *oneContainer) List(context.Context) (cri.Snapshot, error) {
	state := cri.ContainerExited
	if o.running.Load() {
		state = cri.ContainerRunning
	}
	return cri.Snapshot{
		Sandboxes:  []cri.Sandbox{{ID: "s", State: cri.SandboxReady, Pod: cri.PodIdentity{UID: "u", Name: "p", Namespace: "ns"}}},
		Containers: []cri.Container{{ID: "id", SandboxID: "s", PodUID: "u", Name: "c", State: state, LogPath: o.log}},
	}, nil
}

func (o *oneContainer) Pods() []*corev1.Pod {
	return []*corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", ContainerID: "x://id", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}}
}

func (o *oneContainer) write(t *testing.T, line string) {
	t.Helper()
	f, err := os.OpenFile(o.log, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	_, err = fmt.Fprintf(f, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), line)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// serveListener runs a server at a loopback address until the test ends, and returns its address and a function that stops
// it.
func serveListener(t *testing.T, s *nodeapi.Server, h http.Handler, config *tls.Config) (address string, stop func() error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, nodeapi.Endpoint{Listener: listener, Handler: h, TLS: config}) }()
	stopped := false
	stop = func() error {
		cancel()
		if stopped {
			return nil
		}
		stopped = true
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			return fmt.Errorf("Run has not returned")
		}
	}
	t.Cleanup(func() { assert.NoError(t, stop()) })
	return listener.Addr().String(), stop
}

func newServer(t *testing.T, o nodeapi.Options) *nodeapi.Server {
	t.Helper()
	o.Insecure = o.Access == nil
	s, err := nodeapi.New(o)
	require.NoError(t, err)
	return s
}

const oldLine = "2026-01-02T03:04:05Z stdout F old\n"

// A followed log delivers lines at once, also during a rotation. The response ends with the container or with the server.
func TestFollowedLogEndsWithContainerOrServer(t *testing.T) {
	for _, ending := range []string{"container", "server"} {
		o := newOneContainer(t, oldLine)
		s := newServer(t, nodeapi.Options{Pods: o, Runtime: o})
		address, stop := serveListener(t, s, s.Handler(), nil)
		r, err := http.Get("http://" + address + "/containerLogs/ns/p/c?follow=true&tailLines=1")
		require.NoError(t, err)
		defer r.Body.Close()
		assert.Equal(t, http.StatusOK, r.StatusCode)
		assert.Empty(t, r.Header.Get("Content-Type"))
		lines := bufio.NewScanner(r.Body)
		require.True(t, lines.Scan())
		assert.Equal(t, "old", lines.Text())
		o.write(t, "one")
		require.True(t, lines.Scan())
		assert.Equal(t, "one", lines.Text())
		o.write(t, "last before the rotation")
		require.NoError(t, os.Rename(o.log, o.log+".20260102-030405"))
		o.write(t, "first after it")
		require.True(t, lines.Scan())
		assert.Equal(t, "last before the rotation", lines.Text())
		require.True(t, lines.Scan())
		assert.Equal(t, "first after it", lines.Text())
		if ending == "container" {
			o.running.Store(false)
		} else {
			require.NoError(t, stop())
		}
		assert.False(t, lines.Scan(), ending)
	}
}

func TestContainerLogsIncludesRotatedFiles(t *testing.T) {
	o := newOneContainer(t, oldLine)
	require.NoError(t, os.WriteFile(o.log+".20260101-000000", []byte("2026-01-01T00:00:00Z stdout F older\n"), 0o600))
	for only, want := range map[bool]string{false: "older\nold\n", true: "old\n"} {
		s := newServer(t, nodeapi.Options{Pods: o, Runtime: o, CurrentLogsOnly: only})
		_, body := get(t, s.Handler(), http.MethodGet, "/containerLogs/ns/p/c")
		assert.Equal(t, want, body)
	}
}

// A client that stops reading a log is disconnected, and its resources are released.
func TestClientThatStopsReadingIsDisconnected(t *testing.T) {
	o := newOneContainer(t, strings.Repeat("2026-01-02T03:04:05Z stdout F "+strings.Repeat("x", 8000)+"\n", 4000))
	ended := make(chan struct{}, 1)
	s := newServer(t, nodeapi.Options{
		Pods: o, Runtime: o, StallTimeout: 300 * time.Millisecond,
		Hooks: nodeapi.Hooks{RequestCompleted: func(nodeapi.Request, time.Duration) { ended <- struct{}{} }},
	})
	address, _ := serveListener(t, s, s.Handler(), nil)
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	fmt.Fprintf(c, "GET /containerLogs/ns/p/c HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the request has not ended")
	}
}

// Slow headers and incomplete bodies time out. The oldest unauthenticated connections are closed in favor of clients that
// send a request.
func TestUnauthenticatedConnectionsAreLimited(t *testing.T) {
	o := newOneContainer(t, oldLine)
	reviewer := new(authtest.Reviewer)
	access, err := auth.New(auth.Options{TokenReviewer: reviewer.Tokens(), AlwaysAllow: true})
	require.NoError(t, err)
	reviewer.AddToken("good", authenticationv1.UserInfo{Username: "bob"})
	var closed atomic.Int64
	s := newServer(t, nodeapi.Options{
		Access: access, Pods: o, Runtime: o, HeaderTimeout: 5 * time.Second, BodyTimeout: 500 * time.Millisecond, MaxUnauthenticated: 20,
		Hooks: nodeapi.Hooks{ConnectionsClosed: func(_ string, n int) { closed.Add(int64(n)) }},
	})
	address, _ := serveListener(t, s, s.Handler(), nil)
	var slow []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		fmt.Fprint(c, "GET /pods HTTP/1.1\r\nHost: x\r\nX: ")
		slow = append(slow, c)
	}
	r, err := http.NewRequest(http.MethodGet, "http://"+address+"/pods", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer good")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err, "an authenticated client is served at the limit")
	answer.Body.Close()
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	start := time.Now()
	for _, c := range slow {
		require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := io.Copy(io.Discard, c)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the unauthenticated connection must be closed")
	}
	assert.Less(t, time.Since(start), time.Minute)
	assert.GreaterOrEqual(t, closed.Load(), int64(150))

	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	fmt.Fprint(c, "POST /pods HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	all, err := io.ReadAll(c)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection with an incomplete body must be closed")
	assert.Contains(t, string(all), "401 Unauthorized")
}

// Certificate, key and client CA are replaced by rename, by symbolic link and in place. Each takes effect within a second.
func TestReplacedCertificatesTakeEffectWithinSecond(t *testing.T) {
	first, second := authtest.NewAuthority(t, "first"), authtest.NewAuthority(t, "second")
	server := x509.Certificate{Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	dir := t.TempDir()
	generation := func(name string, ca *authtest.Authority) string {
		cert, key := authtest.KeyPEM(t, ca.Sign(t, server))
		at := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(at, 0o700))
		for file, data := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM()} {
			require.NoError(t, os.WriteFile(filepath.Join(at, file), data, 0o600))
		}
		return at
	}
	files := []string{"tls.crt", "tls.key", "ca.crt"}
	ways := map[string]func(to string){
		"swapped symbolic link": func(to string) {
			require.NoError(t, os.Symlink(to, filepath.Join(dir, "next")))
			require.NoError(t, os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "now")))
		},
		"a rename": func(to string) {
			for _, f := range files {
				require.NoError(t, os.Rename(filepath.Join(to, f), filepath.Join(dir, "now", f)))
			}
		},
		"in place": func(to string) {
			for _, f := range files {
				data, err := os.ReadFile(filepath.Join(to, f))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(dir, "now", f), data, 0o600))
			}
		},
	}
	for way, replace := range ways {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "now")))
		require.NoError(t, os.Symlink(generation(way+" 1", first), filepath.Join(dir, "now")))
		in := func(f string) string { return filepath.Join(dir, "now", f) }
		pair, err := nodeapi.NewServingFiles(in("tls.crt"), in("tls.key"), nil)
		require.NoError(t, err)
		ca, err := auth.NewCAFile(in("ca.crt"), nil)
		require.NoError(t, err)
		access, err := auth.New(auth.Options{ClientCAs: ca.Pool, AlwaysAllow: true})
		require.NoError(t, err)
		s := newServer(t, nodeapi.Options{Access: access})
		config, err := nodeapi.TLSConfig(nodeapi.TLSOptions{GetCertificate: pair.GetCertificate, ClientCAs: ca.Pool})
		require.NoError(t, err)
		address, _ := serveListener(t, s, s.Handler(), config)

		alice := x509.Certificate{Subject: pkix.Name{CommonName: "alice"}}
		ask := func(by *authtest.Authority) string {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
				RootCAs: by.Pool(), Certificates: []tls.Certificate{by.Sign(t, alice)},
			}}}
			r, err := client.Get("https://" + address + "/healthz")
			if err != nil {
				return "no connection"
			}
			defer r.Body.Close()
			return r.Proto + " " + r.Status
		}
		assert.Equal(t, "HTTP/2.0 200 OK", ask(first), way)
		assert.Equal(t, "no connection", ask(second), way)
		replace(generation(way+" 2", second))
		assert.Eventually(t, func() bool { return ask(second) == "HTTP/2.0 200 OK" }, time.Minute, 50*time.Millisecond, way)
		assert.Equal(t, "no connection", ask(first), way)
	}
}

func TestSecondRunReturnsError(t *testing.T) {
	s := newServer(t, nodeapi.Options{})
	_, stop := serveListener(t, s, s.Healthz(), nil)
	require.NoError(t, stop())
	assert.ErrorContains(t, s.Run(t.Context()), "make another Server")
	assert.ErrorContains(t, newServer(t, nodeapi.Options{}).Run(t.Context(), nodeapi.Endpoint{}), "endpoint 0: Listener and Handler are required")
}
