// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/seed81659283/nodeagent/internal/runonce"
)

// HTTPOptions tunes an [HTTP]. The zero value is for production.
type HTTPOptions struct {
	NodeName string        // see Origin; empty: pods keep their names
	Objects  bool          // see Origin
	Tokens   bool          // see Origin
	Header   http.Header   // of each request; nil: none
	Period   time.Duration // between requests; zero: DefaultPeriod
	Timeout  time.Duration // of a request with its answer; zero: DefaultTimeout
	Client   *http.Client  // nil: http.DefaultClient
	Logger   *slog.Logger  // nil discards
}

// HTTP reads pods from what a server answers to GET requests.
type HTTP struct {
	url   string
	name  string // without password
	opts  HTTPOptions
	guard runonce.Guard

	manifest manifest
	taken    [sha256.Size]byte // of the last answer that was parsed
	last     Update
}

// NewHTTP returns an HTTP for an address.
func NewHTTP(address string, o HTTPOptions) *HTTP {
	o.Period = cmp.Or(o.Period, DefaultPeriod)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Client = cmp.Or(o.Client, http.DefaultClient)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	name := "manifest URL"
	if u, err := url.Parse(address); err == nil {
		name = u.Redacted()
	}
	h := &HTTP{url: address, name: name, opts: o}
	h.guard.Require("source.HTTP", o.Logger, nil)
	return h
}

// Run calls sink with the state of the manifest, after the first request and then after each change, until ctx ends.
// It returns nil. It returns an error at once without a sink, and when it is called a second time.
func (h *HTTP) Run(ctx context.Context, sink func(Update)) error {
	if sink == nil {
		return errNoSink
	}
	if err := h.guard.Begin(); err != nil {
		return fmt.Errorf("source.HTTP: %w", err)
	}
	defer h.guard.End()
	for first := true; ; first = false {
		last := h.last
		u := h.fetch(ctx, time.Now())
		if ctx.Err() != nil {
			return nil
		}
		if first || !u.equal(last) {
			sink(u)
		}
		if !pause(ctx, h.opts.Period, nil) {
			return nil
		}
	}
}

// Fetch asks the server once and returns the state. Run calls it by itself; it is exported for tools that read a
// manifest once, and do not call Run.
func (h *HTTP) Fetch(ctx context.Context, now time.Time) Update {
	h.guard.Spare()
	return h.fetch(ctx, now)
}

func (h *HTTP) fetch(ctx context.Context, now time.Time) Update {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	body, err := h.get(ctx)
	if sum := sha256.Sum256(body); err == nil && sum != h.taken {
		h.manifest.take(body, Origin{
			Source: URL, Location: h.name, NodeName: h.opts.NodeName, Objects: h.opts.Objects, Tokens: h.opts.Tokens, Seen: now,
		}, maxCost())
		h.taken = sum
	}
	h.last = merge(URL, map[string]*manifest{h.name: &h.manifest}, []string{h.name})
	if err != nil {
		h.last.Errs = append([]*Error{{File: h.name, Err: err}}, h.last.Errs...)
	}
	return h.last
}

func (h *HTTP) get(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return nil, fmt.Errorf("request manifest: %w", err)
	}
	if h.opts.Header != nil {
		req.Header = h.opts.Header.Clone()
	}
	resp, err := h.opts.Client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return nil, fmt.Errorf("get manifest: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get manifest: server answers %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read manifest: %w", err)
	case len(body) > maxSize:
		return nil, fmt.Errorf("read manifest: more than %d bytes", maxSize)
	case len(body) == 0:
		return nil, errors.New("read manifest: empty answer; an empty PodList takes all pods away")
	}
	return body, nil
}
