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

// Host is the URL of the API server of a [Cluster].
const Host = "https://apiserver.test:6443"

// Verdict is the decision on a CertificateSigningRequest.
type Verdict string

// The decisions on a request.
const (
	Issue    Verdict = "issue" // approve and sign
	Deny     Verdict = "deny"  // set the condition Denied
	Fail     Verdict = "fail"  // set the condition Failed, as a signer does
	Postpone Verdict = "leave" // no decision until DecidePending is called
)

// Options configures a [Cluster]. The zero value issues a certificate for one hour for each request.
type Options struct {
	TTL      time.Duration // time from issuance to expiry of certificates; zero: one hour
	Backdate time.Duration // how far in the past their validity starts; zero: 5 min, as in Kubernetes; negative: now
	// Decide returns the decision on each request. Nil issues all certificates.
	Decide func(*certificatesv1.CertificateSigningRequest) Verdict
}

// Call is a request that the API server has received.
type Call struct {
	User       string // empty: not authenticated
	Serial     string // serial number of the client certificate; empty: none
	Connection int    // number of the connection, from 1
	Method     string
	Path       string
	Code       int // HTTP status of the response
}

// Cluster is an API server with a certificate signer. Create one with [Start].
type Cluster struct {
	Server *apiservertest.Server // the API server behind TLS

	opts   Options
	ca     *Authority
	listen *listener
	http   *http.Server
	served chan struct{}

	mu     sync.Mutex // guards the fields below
	calls  []Call
	token  string
	decide func(*certificatesv1.CertificateSigningRequest) Verdict
	conns  int
}

// Start returns a running API server that issues certificates. The caller must call [Cluster.Close].
func Start(opts Options) (*Cluster, error) {
	opts.TTL, opts.Backdate = cmp.Or(opts.TTL, time.Hour), max(cmp.Or(opts.Backdate, 5*time.Minute), 0)
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
		Server: apiservertest.NewServer(apiservertest.Options{}), opts: opts, ca: ca, token: DefaultToken, decide: opts.Decide,
		listen: &listener{conns: make(chan net.Conn), closed: make(chan struct{})}, served: make(chan struct{}),
	}
	c.http = &http.Server{
		Handler: c, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12},
		ConnContext: c.numberConnection,
	}
	go func() {
		defer close(c.served)
		_ = c.http.ServeTLS(c.listen, "", "") // Close makes it return
	}()
	return c, nil
}

// Close ends all requests and connections.
func (c *Cluster) Close() {
	c.Server.Close()
	_ = c.http.Close() // the listener is in memory
	<-c.served
}

// CA returns the authority that signs all certificates of the cluster.
func (c *Cluster) CA() *Authority { return c.ca }

// Dial returns an in-memory connection to the API server. It has the signature of a dial function, but ignores the network
// and the address.
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

// SetToken replaces the bootstrap token that the API server accepts. If token is empty, the server accepts none.
func (c *Cluster) SetToken(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = token
}

// SetDecide replaces Options.Decide, which returns the verdict on each new CertificateSigningRequest. With nil, all certificates
// are issued.
func (c *Cluster) SetDecide(decide func(*certificatesv1.CertificateSigningRequest) Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decide = decide
}

// BootstrapKubeconfig returns a kubeconfig with the token [DefaultToken].
func (c *Cluster) BootstrapKubeconfig() []byte { return c.TokenKubeconfig(DefaultToken) }

// TokenKubeconfig returns a kubeconfig with this token.
func (c *Cluster) TokenKubeconfig(token string) []byte {
	return c.buildKubeconfig(&clientcmdapi.AuthInfo{Token: token})
}

// Kubeconfig returns a kubeconfig for the cluster that contains the given client certificate and key.
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
		panic(err) // these fields can always be encoded
	}
	return text
}

// Calls returns the requests whose response is complete.
func (c *Cluster) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

type connection struct{}

// numberConnection returns a context that contains the number of the new connection. ServeHTTP records this number for each
// request.
func (c *Cluster) numberConnection(ctx context.Context, _ net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns++
	return context.WithValue(ctx, connection{}, c.conns)
}

// ServeHTTP authenticates a request and passes it to the API server. It records the request and its response code.
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

// authenticate returns the user of a request, empty without valid credentials, and the serial number of its client
// certificate.
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

// codeRecorder records the status code of a response.
type codeRecorder struct {
	http.ResponseWriter
	code *int
}

// WriteHeader records code and sends the headers.
func (n *codeRecorder) WriteHeader(code int) {
	*n.code = code
	n.ResponseWriter.WriteHeader(code)
}

// Flush sends buffered data to the client.
func (n *codeRecorder) Flush() {
	if f, ok := n.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// listener accepts connections in memory.
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
