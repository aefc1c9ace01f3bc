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

// Defaults of [Options]. The TTLs are the defaults of KubeletConfiguration.
const (
	defaultTokenTTL   = 2 * time.Minute  // authentication.webhook.cacheTTL
	defaultAllowTTL   = 5 * time.Minute  // authorization.webhook.cacheAuthorizedTTL
	defaultDenyTTL    = 30 * time.Second // authorization.webhook.cacheUnauthorizedTTL
	defaultTimeout    = 10 * time.Second
	defaultCacheSize  = 4096
	defaultMaxReviews = 32
)

// Options configures an [Access]. It must set at least one of ClientCAs, TokenReviewer and Anonymous, and exactly one of
// AccessReviewer and AlwaysAllow.
type Options struct {
	NodeName string // name of the Node to which access is reviewed; required with AccessReviewer

	// ClientCAs returns the CAs that may sign client certificates; it is called per request. If it or its result is nil, client
	// certificates are ignored. See [CAFile].
	ClientCAs     func() *x509.CertPool
	TokenReviewer TokenReviewer // nil means that bearer tokens are ignored
	Anonymous     bool          // requests without credentials have the user system:anonymous

	AccessReviewer AccessReviewer // required unless AlwaysAllow is set
	AlwaysAllow    bool           // authorize every authenticated request
	// RunByGet authorizes exec, attach, portForward and run with method GET by the verb get on nodes/proxy, as the kubelet does.
	// If false they need the verb create.
	RunByGet bool

	TokenTTL time.Duration // of a token review in the cache; zero means 2 min, negative none
	AllowTTL time.Duration // of an allowed access in the cache; zero means 5 min, negative none
	DenyTTL  time.Duration // of a denied access in the cache; zero means 30 s, negative none
	// Timeout limits one review at the API server, including retries and the wait for a slot. Zero means 10 s.
	Timeout   time.Duration
	CacheSize int // reviews in each cache; zero means 4096
	// MaxReviews is the largest number of concurrent token reviews, and of concurrent access reviews. One client address or user
	// gets a quarter of it. Eight times as many requests wait for a review; above that the response is 429. Zero means 32.
	MaxReviews int

	Rand   func() float64 // in [0,1), for jitter; nil means math/rand/v2
	Logger *slog.Logger   // nil discards
	Hooks  Hooks
}

// Review is the kind of a review that the API server makes.
type Review string

// Kinds of reviews.
const (
	TokenReview  Review = "TokenReview"
	AccessReview Review = "SubjectAccessReview"
)

// Hooks are called by an [Access]. Each hook may be nil, is called from the goroutine of the request with no lock held, and must
// not block.
type Hooks struct {
	ReviewCompleted func(what Review, took time.Duration, err error) // called after each attempt, with the error of the request
	RequestRefused  func(code int)                                   // a request was refused with this HTTP status
}

// Access authenticates and authorizes requests. Create it with [New].
type Access struct {
	o       Options
	reviews *reviewer
	lines   logBudget
}

// New returns an Access for opts. It sends no request. The error names the missing or invalid option.
func New(opts Options) (*Access, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("auth: New: Options: %w", err)
	}
	opts.setDefaults()
	a := &Access{o: opts}
	a.reviews = newReviewer(&a.o)
	return a, nil
}

func (o *Options) validate() error {
	switch {
	case o.ClientCAs == nil && o.TokenReviewer == nil && !o.Anonymous:
		return errors.New("no way to authenticate: set ClientCAs, TokenReviewer or Anonymous")
	case o.AccessReviewer == nil && !o.AlwaysAllow:
		return errors.New("no way to authorize: set AccessReviewer or AlwaysAllow")
	case o.AccessReviewer != nil && o.AlwaysAllow:
		return errors.New("AccessReviewer and AlwaysAllow exclude each other")
	case o.AccessReviewer != nil && o.NodeName == "":
		return errors.New("NodeName: required with AccessReviewer")
	case o.Timeout < 0 || o.CacheSize < 0 || o.MaxReviews < 0:
		return fmt.Errorf("none of Timeout %s, CacheSize %d and MaxReviews %d may be negative", o.Timeout, o.CacheSize, o.MaxReviews)
	}
	return nil
}

func (o *Options) setDefaults() {
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

// errUnauthenticated is the error for a request without credentials of an enabled kind.
var errUnauthenticated = errors.New("the request has no credentials that count here")

// authenticate returns the user of the request, from its client certificate, bearer token or WebSocket subprotocols. It removes
// the credentials from the headers.
func (a *Access) authenticate(r *http.Request) (User, error) {
	var failures []error
	token, bad := protocolToken(r.Header)
	for _, method := range []func() (User, bool, error){
		func() (User, bool, error) { return a.authenticateCertificate(r) },
		func() (User, bool, error) { return a.authenticateToken(r, bearerToken(r.Header)) },
		func() (User, bool, error) {
			if bad != nil && a.o.TokenReviewer != nil {
				return User{}, false, bad
			}
			return a.authenticateToken(r, token)
		},
	} {
		user, ok, err := method()
		if ok {
			removeCredentials(r.Header)
			return user.addAuthenticatedGroup(), nil
		}
		if err != nil {
			failures = append(failures, err)
		}
	}
	switch {
	case len(failures) > 0: // invalid credentials are an error also if Options.Anonymous is set
		return User{}, errors.Join(failures...)
	case a.o.Anonymous:
		return anonymousUser(), nil
	}
	return User{}, errUnauthenticated
}

func (a *Access) authenticateCertificate(r *http.Request) (User, bool, error) {
	if a.o.ClientCAs == nil || r.TLS == nil {
		return User{}, false, nil
	}
	roots := a.o.ClientCAs()
	if roots == nil {
		return User{}, false, nil
	}
	return verifyCertificate(r.TLS.PeerCertificates, roots, time.Now())
}

func (a *Access) authenticateToken(r *http.Request, token string) (User, bool, error) {
	if a.o.TokenReviewer == nil || token == "" {
		return User{}, false, nil
	}
	reviewed, err := a.reviews.reviewToken(r.Context(), clientKey(r.RemoteAddr), token)
	if err == nil && !reviewed.authenticated {
		err = errors.New("the API server does not know the bearer token")
	}
	return reviewed.user, reviewed.authenticated && err == nil, err
}

// Refusal is the response to a request that failed authentication or authorization.
type Refusal struct {
	Code int    // HTTP status
	Text string // response body
	Err  error  // cause, for the log; may be nil
}

// Error returns Text and the cause.
func (r *Refusal) Error() string {
	if r.Err == nil {
		return r.Text
	}
	return r.Text + ": " + r.Err.Error()
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// authorize returns nil if user may send a request with this method and path. Otherwise it returns the HTTP response to
// send.
func (a *Access) authorize(ctx context.Context, user User, method, path string) *Refusal {
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
		allowed, err := a.reviews.reviewAccess(ctx, user, at)
		if errors.Is(err, errBusy) {
			return newBusyRefusal(err)
		}
		if err != nil {
			return &Refusal{Code: http.StatusInternalServerError, Err: err, Text: fmt.Sprintf(
				"Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Name, at.Verb, at.Subresource)}
		}
		if allowed {
			return nil
		}
		names = append(names, at.Subresource)
	}
	return &Refusal{Code: http.StatusForbidden, Text: fmt.Sprintf(
		"Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", user.Name, all[0].Verb, names)}
}

// Check authenticates and authorizes the request r. If r is allowed, it returns the user and nil. Otherwise the Refusal
// contains the HTTP response to send.
func (a *Access) Check(r *http.Request) (User, *Refusal) {
	user, err := a.authenticate(r)
	if errors.Is(err, errBusy) {
		return User{}, newBusyRefusal(err)
	}
	if err != nil {
		return User{}, &Refusal{Code: http.StatusUnauthorized, Text: "Unauthorized", Err: err}
	}
	return user, a.authorize(r.Context(), user, r.Method, r.URL.Path)
}

// newBusyRefusal returns the response 429: too many requests wait for a review by the API server. err is the cause for the
// log.
func newBusyRefusal(err error) *Refusal {
	return &Refusal{Code: http.StatusTooManyRequests, Text: "Too many requests wait to be authorized\n", Err: err}
}

// Handler returns a handler that calls next for authorized requests. It responds to all other requests itself, with status 401,
// 403, 429 or 500.
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
