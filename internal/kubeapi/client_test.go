// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

func newClient(t *testing.T, config *rest.Config, o kubeapi.Options) *kubeapi.Client {
	t.Helper()
	client, err := kubeapi.New(config, o)
	require.NoError(t, err)
	return client
}

// nodes returns the resource that most tests use.
func nodes(client *kubeapi.Client) kubeapi.Resource[*corev1.Node] {
	return kubeapi.In(client, kubeapi.Nodes, "")
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		config *rest.Config
		o      kubeapi.Options
		want   string
	}{
		"nil":        {nil, kubeapi.Options{}, "config is nil"},
		"no host":    {&rest.Config{}, kubeapi.Options{}, "config.Host is empty"},
		"bad host":   {&rest.Config{Host: "http://a b"}, kubeapi.Options{}, "a b"},
		"bad CA":     {&rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}, kubeapi.Options{}, "connect to https://a"},
		"no CA file": {&rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}, kubeapi.Options{}, "/nowhere"},
		"negative":   {&rest.Config{Host: "http://a"}, kubeapi.Options{Burst: -1}, "Burst -1"},
	} {
		_, err := kubeapi.New(c.config, c.o)
		assert.ErrorContains(t, err, c.want, name)
	}
	config := &rest.Config{Host: "http://a", QPS: 1, UserAgent: "mine"}
	client := newClient(t, config, kubeapi.Options{})
	config.Host = "http://b"
	_, err := nodes(client).Get(canceled(t), "n1")
	require.NotContains(t, err.Error(), "http://b", "New copies the config")
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestRequests(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	client := newClient(t, server.Config(), kubeapi.Options{UserAgent: "agent"})
	r := kubeapi.In(client, kubeapi.ConfigMaps, "shop")
	o, err := r.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: named("a"), Data: map[string]string{"k": "1"}})
	require.NoError(t, err)
	require.NotEmpty(t, o.UID)
	stale := o.DeepCopy()
	o.Data["k"] = "2"
	o, err = r.Update(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, "2", o.Data["k"])
	_, err = r.Update(t.Context(), stale)
	require.True(t, apierrors.IsConflict(err))
	require.ErrorContains(t, err, "update configmaps shop/a: ")
	o, err = r.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"k":"3"}}`))
	require.NoError(t, err)
	require.Equal(t, "3", o.Data["k"])
	got, err := r.GetCached(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, o, got)
	page, err := r.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.NotEmpty(t, page.ResourceVersion)
	w, err := r.Watch(t.Context(), metav1.ListOptions{ResourceVersion: page.ResourceVersion})
	require.NoError(t, err)
	defer w.Stop()
	uid := types.UID("another")
	err = r.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.NoError(t, r.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	require.Equal(t, "a", (<-w.ResultChan()).Object.(*corev1.ConfigMap).Name)
	_, err = r.Get(t.Context(), "a")
	require.True(t, apierrors.IsNotFound(err))
	require.EqualError(t, err, `get configmaps shop/a: configmaps "a" not found`)

	n, err := nodes(client).Create(t.Context(), node("n1"))
	require.NoError(t, err)
	n, err = nodes(client).Patch(t.Context(), n.Name, types.StrategicMergePatchType, []byte(`{"status":{"nodeInfo":{"machineID":"m"}}}`), "status")
	require.NoError(t, err)
	require.Equal(t, "m", n.Status.NodeInfo.MachineID)
	for _, request := range server.Requests(match{}) {
		assert.Equal(t, "agent", request.UserAgent)
		if request.Verb == "create" || request.Verb == "update" || request.Verb == "delete" {
			assert.Equal(t, "application/vnd.kubernetes.protobuf", request.ContentType, request.Verb)
		}
	}
}

// The limit is 100 requests at once, then 50 per second. Heartbeats and WithBudget clients have their own limits.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		require.NoError(t, server.Put(node("n1")))
		client := newClient(t, server.Config(), kubeapi.Options{})
		beats, err := client.HeartbeatClient()
		require.NoError(t, err)
		begin := time.Now()
		var group sync.WaitGroup
		for range 200 {
			group.Go(func() {
				_, err := nodes(client).Get(t.Context(), "n1")
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		assert.Equal(t, 100, server.CountRequests(match{}))
		_, err = nodes(beats).Get(t.Context(), "n1")
		require.NoError(t, err)
		apart, err := client.WithBudget(1, 5)
		require.NoError(t, err)
		for range 5 {
			_, err = nodes(apart).Get(t.Context(), "n1")
			require.NoError(t, err)
		}
		assert.Zero(t, time.Since(begin))
		group.Wait()
		assert.InDelta(t, 2, time.Since(begin).Seconds(), 0.05)
	})
}

// The client waits for Retry-After if the deadline permits, and otherwise returns the error at once.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		require.NoError(t, server.Put(node("n1")))
		client := newClient(t, server.Config(), kubeapi.Options{})
		for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			server.Inject(fault{Times: 2, Code: code, RetryAfter: 3 * time.Second})
			begin := time.Now()
			_, err := nodes(client).Get(t.Context(), "n1")
			require.NoError(t, err)
			require.Equal(t, 6*time.Second, time.Since(begin).Round(time.Second), code)
		}
		server.Inject(fault{Code: http.StatusTooManyRequests, RetryAfter: 30 * time.Second})
		begin := time.Now()
		_, err := nodes(client).Get(t.Context(), "n1")
		require.True(t, apierrors.IsTooManyRequests(err))
		after, asked := kubeapi.RetryAfter(err)
		require.True(t, asked)
		require.Equal(t, 30*time.Second, after)
		require.Zero(t, time.Since(begin))
		server.ForgetRequests()
		server.Fail("", "", http.StatusInternalServerError)
		_, err = nodes(client).Update(t.Context(), node("n1"))
		require.True(t, apierrors.IsInternalError(err))
		require.Equal(t, 1, server.CountRequests(match{}), "a request without Retry-After is not repeated")
	})
}

// Every request has a deadline, even if the DNS server does not respond.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		server.Hang("", "")
		begin := time.Now()
		_, err := nodes(newClient(t, server.Config(), kubeapi.Options{})).Get(t.Context(), "n1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(begin))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = nodes(newClient(t, server.Config(), kubeapi.Options{})).Get(short, "n1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 11*time.Second, time.Since(begin))
		server.Close()

		client := newClient(t, &rest.Config{Host: "http://nowhere.test", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done() // as a resolver without a response from the name server
			return nil, ctx.Err()
		}}, kubeapi.Options{Timeout: time.Hour})
		begin = time.Now()
		_, err = nodes(client).Get(t.Context(), "n1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(begin))
		_, err = nodes(client).Watch(t.Context(), metav1.ListOptions{})
		require.NoError(t, err, "a watch that cannot connect ends without an error")
	})
}

// proxy forwards connections to a server until kill is called.
type proxy struct {
	net.Listener
	to string

	mu    sync.Mutex
	dead  map[net.Conn]bool
	conns []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{Listener: l, to: to, dead: map[net.Conn]bool{}}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { p.forward(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		group.Wait()
	})
	return p
}

func (p *proxy) forward(c net.Conn) {
	s, err := net.Dial("tcp", p.to)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, c, s)
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); p.copy(s, c, c) }()
	p.copy(c, s, c)
	c.Close()
	s.Close()
	<-done
}

// copy forwards data from one connection to the other. It discards the data once kill was called.
func (p *proxy) copy(to, from, conn net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		dead := p.dead[conn]
		p.mu.Unlock()
		if n > 0 && !dead {
			_, _ = to.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		p.dead[c] = true
	}
}

func (p *proxy) accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

// A dead connection fails one request. The next request uses a new connection.
func TestDeadConnection(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	require.NoError(t, server.Put(node("n1")))
	for name, plain := range map[string]bool{"HTTP/2": false, "HTTP/1.1": true} {
		t.Run(name, func(t *testing.T) {
			config, stop := server.Listen(plain)
			t.Cleanup(stop)
			scheme, address, _ := strings.Cut(config.Host, "://")
			p := newProxy(t, address)
			config.Host = scheme + "://" + p.Addr().String()
			client := newClient(t, config, kubeapi.Options{Timeout: 4 * time.Second})
			beats, err := client.HeartbeatClient()
			require.NoError(t, err)
			for _, c := range []*kubeapi.Client{client, beats} {
				for range 3 {
					_, err := nodes(c).Get(t.Context(), "n1")
					require.NoError(t, err)
				}
				before := p.accepted()
				p.kill()
				_, err := nodes(c).Get(t.Context(), "n1")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				_, err = nodes(c).Get(t.Context(), "n1")
				require.NoError(t, err)
				require.Equal(t, before+1, p.accepted())
				c.CloseConnections()
				_, err = nodes(c).Get(t.Context(), "n1")
				require.NoError(t, err)
				require.Equal(t, before+2, p.accepted())
			}
		})
	}
}

// A hanging request keeps the connection of other requests open. A hanging heartbeat closes its connection.
func TestHungRequest(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	require.NoError(t, server.Put(node("n1")))
	config, stop := server.Listen(false)
	t.Cleanup(stop)
	client := newClient(t, config, kubeapi.Options{Timeout: 4 * time.Second})
	beats, err := client.HeartbeatClient()
	require.NoError(t, err)
	for _, c := range []*kubeapi.Client{client, beats} {
		w, err := nodes(c).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		require.NoError(t, err)
		require.Equal(t, "n1", (<-w.ResultChan()).Object.(*corev1.Node).Name)
		remove := server.Hang("get", "nodes")
		go func() {
			time.Sleep(100 * time.Millisecond)
			_ = server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"at": time.Now().String()}}})
		}()
		_, err = nodes(c).Get(t.Context(), "n1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		remove()
		<-w.ResultChan()
		require.NoError(t, server.Put(node("n2")))
		_, open := <-w.ResultChan()
		require.Equal(t, c == client, open)
		w.Stop()
		require.NoError(t, server.Remove(node("n2")))
	}
}

// Credential files are read for each request: after a replacement no new client is needed.
func TestTokenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		var got []string
		config := &rest.Config{Host: "http://api", BearerTokenFile: file, Transport: tripper(func(r *http.Request) (*http.Response, error) {
			got = append(got, r.Header.Get("Authorization"))
			return nil, errors.New("enough")
		})}
		client := newClient(t, config, kubeapi.Options{})
		get := func() error { _, err := nodes(client).Get(t.Context(), "n1"); return err }
		require.ErrorContains(t, get(), "read token: open "+file)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.ErrorContains(t, get(), "is empty")
		for _, token := range []string{"one", "two", ""} { // a file that is briefly empty does not change the token
			require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
			time.Sleep(11 * time.Second)
			require.ErrorContains(t, get(), "enough")
		}
		require.Equal(t, []string{"Bearer one", "Bearer two", "Bearer two"}, got)
		require.NoError(t, os.WriteFile(file, make([]byte, 2<<20), 0o600))
		require.ErrorContains(t, get(), "enough")
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A response has a size limit, and is not quoted if it may contain a secret.
func TestHostileResponsesAreErrors(t *testing.T) {
	const geheim = "c2VjcmV0"
	var body func(w http.ResponseWriter)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body(w)
	}))
	defer server.Close()
	client := newClient(t, &rest.Config{Host: server.URL}, kubeapi.Options{})
	secrets := kubeapi.In(client, kubeapi.Secrets, "shop")

	body = func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"kind":"Secret","apiVersion":"v1","data":{"k":"`)
		chunk := strings.Repeat("A", 1<<20)
		for range 12 {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	}
	_, err := secrets.Get(t.Context(), "s")
	require.ErrorIs(t, err, kubeapi.ErrTooLarge)

	for _, text := range []string{
		`{"data":{"k":"` + geheim + `"}}`, `{"kind":"Secret","apiVersion":"v1","data":"` + geheim + `"}`, geheim, "", `{"kind":"X` + geheim + `","apiVersion":"v9"}`,
	} {
		body = func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }
		_, err = secrets.Get(t.Context(), "s")
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), geheim)
		_, err = secrets.List(t.Context(), metav1.ListOptions{})
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), geheim)
		if _, err = kubeapi.CreateToken(t.Context(), client, "shop", "app", &authenticationv1.TokenRequest{}); err != nil {
			require.NotContains(t, err.Error(), geheim)
		}
	}
	body = func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"metadata":{"name":"`+strings.Repeat("x", 5000)+`"}}`)
	}
	_, err = nodes(client).Get(t.Context(), "n1")
	require.Error(t, err)
	require.Less(t, len(err.Error()), 400)
}

// client-go writes nothing to stderr. Its log lines go to Options.Logger.
func TestClientWritesNothingToStderr(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer file.Close()
	before := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = before }()
	synctest.Test(t, func(t *testing.T) {
		k := runStore(t, options{}, withConfigMaps("a"))
		for _, f := range []fault{
			{Match: match{Verb: "list"}, Delay: 9900 * time.Millisecond},
			{Code: http.StatusInternalServerError},
			{Disconnect: true},
			{Hang: true},
			{Code: http.StatusGone},
			{Code: http.StatusTooManyRequests, RetryAfter: time.Second},
		} {
			remove := k.server.Inject(f)
			k.server.DisconnectAll()
			time.Sleep(time.Minute)
			remove()
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var watches atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "this is deprecated"`)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "true" {
			if watches.Add(1) == 2 { // the client has read the first watch
				cancel()
			}
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}{"type":"STRANGE"}nonsense`)
			return
		}
		_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"}}`)
	}))
	defer server.Close()
	var log strings.Builder
	o := kubeapi.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 10}))}
	client := newClient(t, &rest.Config{Host: server.URL}, o)
	require.NoError(t, kubeapi.NewStore(kubeapi.In(client, kubeapi.ConfigMaps, ""), options{}).Run(ctx))

	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Empty(t, string(text))
	require.Contains(t, log.String(), "Unexpected watch event object type")
}
