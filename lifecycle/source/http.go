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

// HTTPOptions configures an [HTTP]. The zero value is valid.
type HTTPOptions struct {
	NodeName     string        // see Origin; empty: pod names are unchanged
	AllowObjects bool          // pods may refer to config maps, secrets and similar objects; see Origin
	AllowTokens  bool          // pods may use service account tokens; see Origin
	Header       http.Header   // added to each request; nil adds none
	Period       time.Duration // time between two requests; zero: DefaultPeriod
	Timeout      time.Duration // time limit of a request with its response; zero: DefaultTimeout
	Client       *http.Client  // nil: http.DefaultClient
	Logger       *slog.Logger  // nil: no logs
}

// HTTP reads static pods from a manifest that an HTTP server returns in response to a GET request.
type HTTP struct {
	url        string
	displayURL string // url without password, for errors
	opts       HTTPOptions
	guard      runonce.Guard

	manifest   manifest
	parsedSum  [sha256.Size]byte // of the last response that was parsed
	lastUpdate Update
}

// NewHTTP returns an HTTP that reads the manifest at the URL address.
func NewHTTP(address string, opts HTTPOptions) *HTTP {
	opts.Period = cmp.Or(opts.Period, DefaultPeriod)
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	opts.Client = cmp.Or(opts.Client, http.DefaultClient)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	name := "manifest URL"
	if u, err := url.Parse(address); err == nil {
		name = u.Redacted()
	}
	h := &HTTP{url: address, displayURL: name, opts: opts}
	h.guard.Require("source.HTTP", opts.Logger, nil)
	return h
}

// Run calls sink(update) with the pods of the manifest after the first request and after each change. It returns nil when ctx
// ends. It returns an error at once if sink is nil or Run was called before.
func (h *HTTP) Run(ctx context.Context, sink func(Update)) error {
	if sink == nil {
		return errNoSink
	}
	if err := h.guard.Begin(); err != nil {
		return fmt.Errorf("source.HTTP: %w", err)
	}
	defer h.guard.End()
	for first := true; ; first = false {
		last := h.lastUpdate
		u := h.fetchManifest(ctx, time.Now())
		if ctx.Err() != nil {
			return nil
		}
		if first || !u.isEqual(last) {
			sink(u)
		}
		if !waitOrWake(ctx, h.opts.Period, nil) {
			return nil
		}
	}
}

// Fetch requests the manifest once and returns its pods. now is the time of the request. Fetch is for programs that do not call
// Run.
func (h *HTTP) Fetch(ctx context.Context, now time.Time) Update {
	h.guard.Spare()
	return h.fetchManifest(ctx, now)
}

func (h *HTTP) fetchManifest(ctx context.Context, now time.Time) Update {
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	body, err := h.requestBody(ctx)
	if sum := sha256.Sum256(body); err == nil && sum != h.parsedSum {
		h.manifest.applyContent(body, Origin{
			Source: URL, Location: h.displayURL, NodeName: h.opts.NodeName, AllowObjects: h.opts.AllowObjects, AllowTokens: h.opts.AllowTokens, Seen: now,
			configured: h.url, // with the password, as in the kubelet; only its hash is visible
		}, maxCost())
		h.parsedSum = sum
	}
	h.lastUpdate = mergeManifests(URL, map[string]*manifest{h.displayURL: &h.manifest}, []string{h.displayURL})
	if err != nil {
		h.lastUpdate.Errs = append([]*Error{{File: h.displayURL, Err: err}}, h.lastUpdate.Errs...)
	}
	return h.lastUpdate
}

func (h *HTTP) requestBody(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url, nil)
	if err != nil {
		return nil, fmt.Errorf("request manifest: %w", err)
	}
	if h.opts.Header != nil {
		req.Header = h.opts.Header.Clone()
	}
	response, err := h.opts.Client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return nil, fmt.Errorf("get manifest: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get manifest: server returned %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read manifest: %w", err)
	case len(body) > maxSize:
		return nil, fmt.Errorf("read manifest: more than %d bytes", maxSize)
	case len(body) == 0:
		return nil, errors.New("read manifest: empty response; serve an empty PodList to remove all pods")
	}
	return body, nil
}
