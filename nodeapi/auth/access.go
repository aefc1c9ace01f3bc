// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/seed81659283/nodeagent/internal/nodeattributes"
)

// What an [Access] does where its options say nothing: the times of KubeletConfiguration.
const (
	defaultTokenTTL   = 2 * time.Minute  // authentication.webhook.cacheTTL
	defaultAllowTTL   = 5 * time.Minute  // authorization.webhook.cacheAuthorizedTTL
	defaultDenyTTL    = 30 * time.Second // authorization.webhook.cacheUnauthorizedTTL
	defaultTimeout    = 10 * time.Second
	defaultCacheSize  = 4096
	defaultMaxReviews = 32
)

// Options say who may do what. One of ClientCAs, Tokens and Anonymous is needed, and either Access or AlwaysAllow.
type Options struct {
	NodeName string // of the Node that access is asked for; required with Access

	// ClientCAs returns whom client certificates may be signed by, at the time. Nil, or a nil pool, ignores certificates. See [CAFile].
	ClientCAs     func() *x509.CertPool
	TokenReviewer TokenReviewer // nil ignores bearer tokens
	Anonymous     bool          // requests without credentials are of the user system:anonymous

	AccessReviewer AccessReviewer // required unless AlwaysAllow is set
	AlwaysAllow    bool           // whoever is authenticated may do everything
	// RunByGet is the kubelet's way: exec, attach, portForward and run by GET need no more than get on nodes/proxy.
	RunByGet bool

	TokenTTL time.Duration // of what is known about a token; zero means 2 min, negative none
	AllowTTL time.Duration // of what is allowed; zero means 5 min, negative none
	DenyTTL  time.Duration // of what is denied; zero means 30 s, negative none
	// Timeout is for one question to the API server, with its retries and with the time that it waits for others. Zero means
	// 10 s.
	Timeout   time.Duration
	CacheSize int // answers of each kind that are remembered; zero means 4096
	// MaxReviews is how many tokens, and the access of how many users, are asked for at a time, a quarter of them for one client
	// address or user. Eight times as many requests wait; beyond, the answer is 429. Zero means 32.
	MaxReviews int

	Rand   func() float64 // in [0,1), for jitter; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  Hooks
}

// Review is a kind of question to the API server.
type Review string

// The kinds of questions.
const (
	TokenReview  Review = "TokenReview"
	AccessReview Review = "SubjectAccessReview"
)

// Hooks hear of what an [Access] does. Each may be nil, is called by the goroutine of the request with no lock held, and must not block.
type Hooks struct {
	ReviewCompleted func(what Review, took time.Duration, err error) // a question was sent to the API server, each try
	RequestRefused  func(code int)                                   // a request was refused with this status
}

// Access decides about requests. Make one with [New].
type Access struct {
	o       Options
	reviews *reviews
	lines   logBudget
}

// New returns an Access, and asks nobody. The error says which option is missing or invalid.
func New(o Options) (*Access, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("auth: New: Options: %w", err)
	}
	o.complete()
	a := &Access{o: o}
	a.reviews = newReviews(&a.o)
	return a, nil
}

func (o *Options) validate() error {
	switch {
	case o.ClientCAs == nil && o.TokenReviewer == nil && !o.Anonymous:
		return errors.New("nobody could be authenticated: set ClientCAs, TokenReviewer or Anonymous")
	case o.AccessReviewer == nil && !o.AlwaysAllow:
		return errors.New("nothing could be authorized: set AccessReviewer or AlwaysAllow")
	case o.AccessReviewer != nil && o.AlwaysAllow:
		return errors.New("AccessReviewer and AlwaysAllow exclude each other")
	case o.AccessReviewer != nil && o.NodeName == "":
		return errors.New("NodeName: required with AccessReviewer")
	case o.Timeout < 0 || o.CacheSize < 0 || o.MaxReviews < 0:
		return fmt.Errorf("none of Timeout %s, CacheSize %d and MaxReviews %d may be negative", o.Timeout, o.CacheSize, o.MaxReviews)
	}
	return nil
}

func (o *Options) complete() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.TokenTTL, defaultTokenTTL}, {&o.AllowTTL, defaultAllowTTL}, {&o.DenyTTL, defaultDenyTTL}, {&o.Timeout, defaultTimeout}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if o.CacheSize == 0 {
		o.CacheSize = defaultCacheSize
	}
	if o.MaxReviews == 0 {
		o.MaxReviews = defaultMaxReviews
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// errUnauthenticated is why a request without credentials is refused. Those that cannot be used have errors of their own.
var errUnauthenticated = errors.New("the request has no credentials that count here")

// authenticate returns who sends a request. A client certificate comes first, then a bearer token, then a token among the WebSocket
// subprotocols: the first that is valid counts, whatever else there is. With none that is valid a bad one is an error, and never
// anonymous. The credentials are taken out of the headers when the user is known. The error is for a log, and not for the client.
func (a *Access) authenticate(r *http.Request) (User, error) {
	var failures []error
	token, bad := protocolBearer(r.Header)
	for _, method := range []func() (User, bool, error){
		func() (User, bool, error) { return a.certificate(r) },
		func() (User, bool, error) { return a.token(r, bearer(r.Header)) },
		func() (User, bool, error) {
			if bad != nil && a.o.TokenReviewer != nil {
				return User{}, false, bad
			}
			return a.token(r, token)
		},
	} {
		user, ok, err := method()
		if ok {
			conceal(r.Header)
			return user.authenticated(), nil
		}
		if err != nil {
			failures = append(failures, err)
		}
	}
	switch {
	case len(failures) > 0:
		return User{}, errors.Join(failures...)
	case a.o.Anonymous:
		return anonymous(), nil
	}
	return User{}, errUnauthenticated
}

func (a *Access) certificate(r *http.Request) (User, bool, error) {
	if a.o.ClientCAs == nil || r.TLS == nil {
		return User{}, false, nil
	}
	roots := a.o.ClientCAs()
	if roots == nil {
		return User{}, false, nil
	}
	return certified(r.TLS.PeerCertificates, roots, time.Now())
}

func (a *Access) token(r *http.Request, token string) (User, bool, error) {
	if a.o.TokenReviewer == nil || token == "" {
		return User{}, false, nil
	}
	who, err := a.reviews.token(r.Context(), clientOf(r.RemoteAddr), token)
	if err == nil && !who.known {
		err = errors.New("the API server does not know the bearer token")
	}
	return who.user, who.known && err == nil, err
}

// Refusal is the answer to a request that may not pass.
type Refusal struct {
	Code int    // of HTTP
	Text string // for the client
	Err  error  // the cause, for a log; may be nil
}

// Error returns the text and the cause.
func (r *Refusal) Error() string {
	if r.Err == nil {
		return r.Text
	}
	return r.Text + ": " + r.Err.Error()
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// authorize returns nil if a user may send a request with this method and path, and else why not.
func (a *Access) authorize(ctx context.Context, u User, method, path string) *Refusal {
	if a.o.AlwaysAllow {
		return nil
	}
	attributes := nodeattributes.ForRequest
	if a.o.RunByGet {
		attributes = nodeattributes.ForKubeletRequest
	}
	all := attributes(method, path)
	var names []string
	for _, at := range all {
		allowed, err := a.reviews.access(ctx, u, at)
		if errors.Is(err, errBusy) {
			return tooMany(err)
		}
		if err != nil {
			return &Refusal{Code: http.StatusInternalServerError, Err: err, Text: fmt.Sprintf(
				"Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", u.Name, at.Verb, at.Subresource)}
		}
		if allowed {
			return nil
		}
		names = append(names, at.Subresource)
	}
	return &Refusal{Code: http.StatusForbidden, Text: fmt.Sprintf(
		"Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", u.Name, all[0].Verb, names)}
}

// Check authenticates and authorizes a request. Without a Refusal it may pass.
func (a *Access) Check(r *http.Request) (User, *Refusal) {
	user, err := a.authenticate(r)
	if errors.Is(err, errBusy) {
		return User{}, tooMany(err)
	}
	if err != nil {
		return User{}, &Refusal{Code: http.StatusUnauthorized, Text: "Unauthorized", Err: err}
	}
	return user, a.authorize(r.Context(), user, r.Method, r.URL.Path)
}

// tooMany is the answer to a client that has more requests than its share, or to any where the API server is too slow.
func tooMany(err error) *Refusal {
	return &Refusal{Code: http.StatusTooManyRequests, Text: "Too many requests wait to be authorized\n", Err: err}
}

// Handler returns a handler that passes on what may pass, and answers the rest.
func (a *Access) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, refusal := a.Check(r)
		if refusal == nil {
			next.ServeHTTP(w, r)
			return
		}
		a.logRefusal(r, user, refusal)
		if call := a.o.Hooks.RequestRefused; call != nil {
			call(refusal.Code)
		}
		if refusal.Code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(refusal.Code)
		_, _ = io.WriteString(w, refusal.Text)
	})
}
