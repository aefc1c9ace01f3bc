// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
)

// serve runs an HTTP server until the test ends, and returns an action for it.
func serve(t *testing.T, tls bool, h http.HandlerFunc) *corev1.HTTPGetAction {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	action := &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt(server.Listener.Addr().(*net.TCPAddr).Port)}
	if tls {
		server.StartTLS()
		action.Scheme = corev1.URISchemeHTTPS
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return action
}

// accept calls handle for each connection to a port until the test ends, and returns an action for it.
func accept(t *testing.T, handle func(n int, conn net.Conn)) *corev1.HTTPGetAction {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(n, conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt(l.Addr().(*net.TCPAddr).Port)}
}

// request runs an httpGet handler, and fails the test if it takes a minute.
func request(t *testing.T, runner *hook.Runner, action *corev1.HTTPGetAction) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	began := time.Now()
	defer func() { assert.Less(t, time.Since(began), time.Minute, "the handler returns within a minute") }()
	return runner.Run(ctx, newCall(), &corev1.LifecycleHandler{HTTPGet: action})
}

// The status code of the response does not matter.
func TestHTTPStatusCodeIgnored(t *testing.T) {
	for _, tls := range []bool{false, true} {
		for _, status := range []int{200, 204, 302, 304, 400, 404, 500, 503} {
			t.Run(fmt.Sprint(tls, status), func(t *testing.T) {
				action := serve(t, tls, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
				assert.NoError(t, request(t, hook.New(hook.Options{}), action))
			})
		}
	}
}

func TestHTTPRequest(t *testing.T) {
	type seen struct {
		url, host string
		header    http.Header
	}
	standard := func(change func(http.Header)) http.Header {
		h := http.Header{
			"User-Agent": {"kube-lifecycle/1.37"}, "Accept": {"*/*"}, "Accept-Encoding": {"gzip"}, "Connection": {"close"},
		}
		change(h)
		return h
	}
	for name, row := range map[string]struct {
		change func(*corev1.HTTPGetAction)
		want   seen
	}{
		"minimal action":    {func(*corev1.HTTPGetAction) {}, seen{"/", "", standard(func(http.Header) {})}},
		"no slash":          {func(a *corev1.HTTPGetAction) { a.Path = "stop" }, seen{"/stop", "", standard(func(http.Header) {})}},
		"query":             {func(a *corev1.HTTPGetAction) { a.Path = "stop?now=1#x" }, seen{"/stop?now=1", "", standard(func(http.Header) {})}},
		"no reference":      {func(a *corev1.HTTPGetAction) { a.Path = "/%zz" }, seen{"/%25zz", "", standard(func(http.Header) {})}},
		"address in path":   {func(a *corev1.HTTPGetAction) { a.Path = "ftp://elsewhere:1/stop" }, seen{"/stop", "", standard(func(http.Header) {})}},
		"scheme":            {func(a *corev1.HTTPGetAction) { a.Scheme = "HTTP" }, seen{"/", "", standard(func(http.Header) {})}},
		"named port":        {func(a *corev1.HTTPGetAction) { a.Port = intstr.FromString("admin") }, seen{"/", "", standard(func(http.Header) {})}},
		"host":              {func(a *corev1.HTTPGetAction) { a.Host = "localhost" }, seen{"/", "localhost", standard(func(http.Header) {})}},
		"headers":           {headers("x-a", "1", "X-A", "2"), seen{"/", "", standard(func(h http.Header) { h["X-A"] = []string{"1", "2"} })}},
		"virtual host":      {headers("Host", "shop.example"), seen{"/", "shop.example", standard(func(http.Header) {})}},
		"user agent":        {headers("user-agent", "me"), seen{"/", "", standard(func(h http.Header) { h.Set("User-Agent", "me") })}},
		"no user agent":     {headers("User-Agent", ""), seen{"/", "", standard(func(h http.Header) { h.Del("User-Agent") })}},
		"no accepted types": {headers("Accept", ""), seen{"/", "", standard(func(h http.Header) { h.Del("Accept") })}},
	} {
		t.Run(name, func(t *testing.T) {
			var got seen
			action := serve(t, false, func(_ http.ResponseWriter, r *http.Request) { got = seen{r.RequestURI, r.Host, r.Header} })
			port := action.Port.IntValue()
			row.change(action)
			c := newCall()
			c.Container.Ports = []corev1.ContainerPort{
				{Name: "other", ContainerPort: 1}, {Name: "admin", ContainerPort: int32(port)}, {Name: "admin", ContainerPort: 2},
			}
			require.NoError(t, hook.New(hook.Options{}).Run(t.Context(), c, &corev1.LifecycleHandler{HTTPGet: action}))
			got.host = strings.TrimSuffix(got.host, fmt.Sprint(":", port))
			if row.want.host == "" {
				row.want.host = "127.0.0.1"
			}
			assert.Equal(t, row.want, got)
		})
	}
}

// headers returns a change that sets these header names and values.
func headers(pairs ...string) func(*corev1.HTTPGetAction) {
	return func(a *corev1.HTTPGetAction) {
		for i := 0; i < len(pairs); i += 2 {
			a.HTTPHeaders = append(a.HTTPHeaders, corev1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
		}
	}
}

// A request that cannot be sent reports the cause.
func TestHTTPRequestErrors(t *testing.T) {
	for want, change := range map[string]func(*corev1.HTTPGetAction){
		`field port: "admin" names no port of the container`: func(a *corev1.HTTPGetAction) { a.Port = intstr.FromString("admin") },
		`field port: "" names no port of the container`:      func(a *corev1.HTTPGetAction) { a.Port = intstr.FromString("") },
		`field port: 0 is not from 1 to 65535`:               func(a *corev1.HTTPGetAction) { a.Port = intstr.FromInt32(0) },
		`field port: 65536 is not from 1 to 65535`:           func(a *corev1.HTTPGetAction) { a.Port = intstr.FromInt32(65536) },
		`unsupported protocol scheme "ftp"`:                  func(a *corev1.HTTPGetAction) { a.Scheme = "ftp" },
		`invalid header field value for "X-A"`:               headers("X-A", "1\r\nX-B: 2"),
		`invalid header field name`:                          headers("X A", "1"),
		`invalid URL escape`:                                 func(a *corev1.HTTPGetAction) { a.Host = "a b" },
		`connection refused`:                                 func(*corev1.HTTPGetAction) {},
	} {
		t.Run(want, func(t *testing.T) {
			action := accept(t, func(int, net.Conn) {})
			conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", action.Port.IntValue()))
			require.NoError(t, err)
			defer conn.Close()
			action.Port = intstr.FromInt(conn.LocalAddr().(*net.TCPAddr).Port) // a bound UDP port, on which no TCP server can listen
			action.Path = "/stop"
			change(action)
			err = request(t, hook.New(hook.Options{}), action)
			require.ErrorContains(t, err, want)
			assert.ErrorContains(t, err, `HTTP lifecycle hook (/stop) for Container "app" in Pod "web_shop(u1)" failed - error: `)
		})
	}
	c := newCall()
	c.PodIP = ""
	err := hook.New(hook.Options{}).Run(t.Context(), c, &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}})
	assert.ErrorContains(t, err, "the pod has no IP address")
}

func TestHTTPFollowsRedirectsToSameHostOnly(t *testing.T) {
	var elsewhere, requests atomic.Int32
	other := serve(t, false, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	secure := serve(t, true, func(w http.ResponseWriter, _ *http.Request) { elsewhere.Add(1) })
	action := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		to := map[string]string{
			"/loop": "/loop", "/one": "/two",
			"/port":   fmt.Sprintf("http://127.0.0.1:%d/", other.Port.IntValue()),
			"/scheme": fmt.Sprintf("https://127.0.0.1:%d/", secure.Port.IntValue()),
			"/host":   fmt.Sprintf("http://localhost:%d/", other.Port.IntValue()),
		}[r.URL.Path]
		if to == "" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		http.Redirect(w, r, to, http.StatusFound)
	})
	for path, want := range map[string]struct {
		requests, elsewhere int32
		err                 string
	}{
		"/one":    {2, 0, ""},
		"/port":   {1, 1, ""}, // same host, other port
		"/scheme": {1, 1, ""},
		"/host":   {1, 0, ""}, // not followed; the response is accepted
		"/loop":   {10, 0, "stopped after 10 redirects"},
	} {
		t.Run(path, func(t *testing.T) {
			requests.Store(0)
			elsewhere.Store(0)
			action := *action
			action.Path = path
			err := request(t, hook.New(hook.Options{}), &action)
			if want.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, want.err)
			}
			assert.Equal(t, want.requests, requests.Load())
			assert.Equal(t, want.elsewhere, elsewhere.Load())
		})
	}
}

// An HTTPS request to an HTTP server is repeated over HTTP, without credentials.
func TestHTTPSFallsBackToHTTPWithoutCredentials(t *testing.T) {
	var got *http.Request
	action := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.WriteHeader(http.StatusTeapot)
	})
	action.Scheme, action.Path = corev1.URISchemeHTTPS, "//user:secret@elsewhere/stop"
	headers("Authorization", "secret", "X-A", "1", "Host", "shop.example")(action)
	var messages []string
	runner := hook.New(hook.Options{Hooks: hook.Hooks{HTTPFallback: func(c hook.Call, message string) {
		messages = append(messages, c.Container.Name+": "+message)
	}}})
	require.NoError(t, request(t, runner, action))
	assert.Equal(t, "/stop", got.URL.Path)
	assert.Equal(t, "shop.example", got.Host)
	assert.Equal(t, "1", got.Header.Get("X-A"))
	assert.NotContains(t, got.Header, "Authorization")
	assert.Equal(t, []string{fmt.Sprintf(
		"app: request to HTTPS lifecycle hook 127.0.0.1:%d got HTTP response, retry with HTTP succeeded", action.Port.IntValue())}, messages)
}

// If the retry over HTTP fails too, the error is that of the HTTPS request.
func TestHTTPSFallbackErrorIsOfFirstRequest(t *testing.T) {
	var connections atomic.Int32
	action := accept(t, func(n int, conn net.Conn) {
		connections.Add(1)
		if n == 0 {
			fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_, _ = io.CopyN(io.Discard, conn, 5)
		}
	})
	action.Scheme = corev1.URISchemeHTTPS
	runner := hook.New(hook.Options{Hooks: hook.Hooks{HTTPFallback: func(hook.Call, string) { t.Error("HTTPFallback called for a failed retry") }}})
	require.ErrorContains(t, request(t, runner, action), "server gave HTTP response to HTTPS client")
	assert.EqualValues(t, 2, connections.Load())
}

// After other TLS errors there is no retry over HTTP.
func TestHTTPSNoFallbackAfterOtherTLSErrors(t *testing.T) {
	var connections atomic.Int32
	action := accept(t, func(_ int, conn net.Conn) {
		connections.Add(1)
		fmt.Fprint(conn, "SSH-2.0-server\r\n")
		_, _ = io.CopyN(io.Discard, conn, 5)
	})
	action.Scheme = corev1.URISchemeHTTPS
	require.Error(t, request(t, hook.New(hook.Options{}), action))
	assert.EqualValues(t, 1, connections.Load())
}

// The handler returns when its context ends, at whichever step the server hangs.
func TestHTTPEndsWithContext(t *testing.T) {
	silent := func(_ int, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	body := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for name, action := range map[string]*corev1.HTTPGetAction{
		"no answer":         accept(t, silent),
		"no handshake":      func() *corev1.HTTPGetAction { a := accept(t, silent); a.Scheme = "HTTPS"; return a }(),
		"endless body":      serve(t, false, body),
		"endless body, TLS": serve(t, true, body),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			err := hook.New(hook.Options{}).Run(ctx, newCall(), &corev1.LifecycleHandler{HTTPGet: action})
			require.ErrorIs(t, err, context.DeadlineExceeded)

			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, stop)
			err = hook.New(hook.Options{}).Run(ctx, newCall(), &corev1.LifecycleHandler{HTTPGet: action})
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

// A short body is read to its end. A long, endless or incomplete body causes neither a wait nor an error.
func TestHTTPWaitsForEndOfShortBody(t *testing.T) {
	t.Run("waited for", func(t *testing.T) {
		var done atomic.Bool
		release := make(chan struct{})
		action := serve(t, false, func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			close(release)
			for range 20 {
				_, _ = io.WriteString(w, ".")
				_ = http.NewResponseController(w).Flush()
			}
			done.Store(true)
		})
		require.NoError(t, request(t, hook.New(hook.Options{}), action))
		<-release
		assert.True(t, done.Load())
	})
	for name, h := range map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1024)); err != nil {
					return
				}
			}
		},
		"long Content-Length": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10241")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "short")
		},
		"another protocol": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, _ := http.NewResponseController(w).Hijack()
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, request(t, hook.New(hook.Options{}), serve(t, false, h)))
		})
	}
	t.Run("endless header", func(t *testing.T) {
		action := accept(t, func(_ int, conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := fmt.Fprintf(conn, "X: %01000d\r\n", 1); err != nil {
					return
				}
			}
		})
		require.ErrorContains(t, request(t, hook.New(hook.Options{}), action), "server response headers exceeded 262144 bytes")
	})
}

// The error wraps its cause.
func TestHTTPErrorWrapsCause(t *testing.T) {
	err := request(t, hook.New(hook.Options{}), accept(t, func(_ int, conn net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
	}))
	failed, ok := errors.AsType[*hook.Error](err)
	require.True(t, ok)
	assert.Equal(t, "app", failed.Call.Container.Name)
	assert.ErrorIs(t, err, io.EOF)
}
