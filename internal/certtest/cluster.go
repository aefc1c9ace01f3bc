// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certtest

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// DefaultToken is the bootstrap token of a [Cluster].
const DefaultToken = "abcdef.0123456789abcdef"

// Host is the address of the API server.
const Host = "https://apiserver.test:6443"

// Verdict is what becomes of a CertificateSigningRequest.
type Verdict string

// What may become of a request.
const (
	Issue    Verdict = "issue"
	Deny     Verdict = "deny"
	Fail     Verdict = "fail"
	Postpone Verdict = "leave" // until Sign is called
)

// Options tune a [Cluster]. The zero value issues all requests for an hour.
type Options struct {
	TTL      time.Duration // of what is issued, from now on; zero: an hour
	Backdate time.Duration // what is issued begins so long ago; zero: 5 min, as that of Kubernetes; negative: not at all
	// Decide is asked about each request; nil issues all.
	Decide func(*certificatesv1.CertificateSigningRequest) Verdict
}

// Call is a request that the API server got.
type Call struct {
	User       string // empty: nobody who is known
	Serial     string // of the certificate of the user
	Connection int    // from 1 on
	Method     string
	Path       string
	Code       int // of the answer
}

// Cluster is an API server with a signer. Make one with [Start].
type Cluster struct {
	Server *apiservertest.Server // what is behind TLS

	opts   Options
	ca     *Authority
	listen *listener
	http   *http.Server
	served chan struct{}

	mu     sync.Mutex // guards what follows
	calls  []Call
	token  string
	decide func(*certificatesv1.CertificateSigningRequest) Verdict
	conns  int
}

// Start returns a cluster that runs until [Cluster.Close].
func Start(o Options) (*Cluster, error) {
	o.TTL, o.Backdate = cmp.Or(o.TTL, time.Hour), max(cmp.Or(o.Backdate, 5*time.Minute), 0)
	ca, err := NewAuthority("certtest")
	if err != nil {
		return nil, err
	}
	certPEM, keyPEM, err := ca.servingCertificate("apiserver.test")
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Server: apiservertest.NewServer(apiservertest.Options{}), opts: o, ca: ca, token: DefaultToken, decide: o.Decide,
		listen: &listener{conns: make(chan net.Conn), closed: make(chan struct{})}, served: make(chan struct{}),
	}
	c.http = &http.Server{
		Handler: c, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12},
		ConnContext: c.numberConnection,
	}
	go func() {
		defer close(c.served)
		_ = c.http.ServeTLS(c.listen, "", "") // it ends with Close
	}()
	return c, nil
}

// Close ends all requests and connections.
func (c *Cluster) Close() {
	c.Server.Close()
	_ = c.http.Close() // what is closed is in memory
	<-c.served
}

// CA returns the authority of the cluster.
func (c *Cluster) CA() *Authority { return c.ca }

// Dial makes a connection to the API server, whatever the address.
func (c *Cluster) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case c.listen.conns <- there:
		return here, nil
	case <-c.listen.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// SetToken makes another token the one that is known; an empty one: none is.
func (c *Cluster) SetToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = token
}

// SetDecide replaces Options.Decide.
func (c *Cluster) SetDecide(decide func(*certificatesv1.CertificateSigningRequest) Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decide = decide
}

// BootstrapKubeconfig returns a kubeconfig with the token [DefaultToken].
func (c *Cluster) BootstrapKubeconfig() []byte { return c.TokenKubeconfig(DefaultToken) }

// TokenKubeconfig returns a kubeconfig with a token.
func (c *Cluster) TokenKubeconfig(token string) []byte {
	return c.buildKubeconfig(&clientcmdapi.AuthInfo{Token: token})
}

// Kubeconfig returns a kubeconfig that has a client certificate and its key, both PEM, in it.
func (c *Cluster) Kubeconfig(certPEM, keyPEM []byte) []byte {
	return c.buildKubeconfig(&clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: keyPEM})
}

func (c *Cluster) buildKubeconfig(user *clientcmdapi.AuthInfo) []byte {
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: Host, CertificateAuthorityData: c.ca.PEM()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"test": user},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	})
	if err != nil {
		panic(err) // these fields can always be written
	}
	return text
}

// Calls returns the requests that the API server got. Those that are under way are not among them.
func (c *Cluster) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

type connection struct{}

// number gives a connection its number.
func (c *Cluster) numberConnection(ctx context.Context, _ net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns++
	return context.WithValue(ctx, connection{}, c.conns)
}

// ServeHTTP finds out who makes a request, and has the API server answer it.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number, _ := r.Context().Value(connection{}).(int)
	call := Call{Connection: number, Method: r.Method, Path: r.URL.Path, Code: http.StatusOK}
	call.User, call.Serial = c.authenticate(r)
	noted := &codeRecorder{ResponseWriter: w, code: &call.Code}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, call)
	}()
	if call.User == "" {
		noted.Header().Set("Content-Type", "application/json")
		noted.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
		return
	}
	c.Server.ServeHTTP(noted, r)
	if r.Method == http.MethodPost {
		c.DecidePending()
	}
}

// who returns the user of a request, and the serial number of the certificate that says so.
func (c *Cluster) authenticate(r *http.Request) (user, serial string) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		leaf := r.TLS.PeerCertificates[0]
		if c.ca.isIssuerOf(leaf) {
			return leaf.Subject.CommonName, leaf.SerialNumber.String()
		}
		return "", ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" && r.Header.Get("Authorization") == "Bearer "+c.token {
		return "system:bootstrap:" + c.token[:6], ""
	}
	return "", ""
}

// noting notes the code of an answer.
type codeRecorder struct {
	http.ResponseWriter
	code *int
}

// WriteHeader begins an answer.
func (n *codeRecorder) WriteHeader(code int) {
	*n.code = code
	n.ResponseWriter.WriteHeader(code)
}

// Flush sends what was written.
func (n *codeRecorder) Flush() {
	if f, ok := n.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// listener hands out connections in memory.
type listener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "certtest", Net: "memory"} }
