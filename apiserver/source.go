// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// Options configures a [Source]. NodeName is required.
type Options struct {
	NodeName  string // name of the Node object whose pods are listed; required
	UserAgent string // empty: "nodeagent"
	// WaitForNode blocks until the Node is registered with the labels that pod admission reads, or returns an error. The first
	// list of pods follows it. Nil: no wait.
	WaitForNode func(ctx context.Context) error
	// EventQPS and EventBurst are the rate limit of requests for events. Zero: events share the limit of the other requests. A negative EventQPS: no
	// limit.
	EventQPS   float32
	EventBurst int
	Logger     *slog.Logger // nil discards
	Hooks      Hooks
}

// Hooks reports events of a [Source]. Any hook may be nil. Hooks are called with no lock held and must not block.
type Hooks struct {
	// Error is called for each failed list or watch of the pods of the node. The request is retried after a back-off.
	Error func(err error)
}

// Source is the client of one API server for the pods of a node. It lists them, and its components report their statuses and
// events. Create one with [New].
type Source struct {
	opts   Options
	client *kubeapi.Client
	events *kubeapi.Client // of the Recorder
	pods   *Pods

	tokenReviews  TokenReviews
	accessReviews AccessReviews
}

// New returns a Source for the API server in config, which New copies. New sends no request: requests start when a component
// of the Source runs. An error names the missing field of config or opts.
func New(config *rest.Config, opts Options) (*Source, error) {
	if opts.NodeName == "" {
		return nil, errors.New("apiserver.New: Options.NodeName: required: the name of the Node whose pods are to run")
	}
	if errs := validation.NameIsDNSSubdomain(opts.NodeName, false); len(errs) > 0 {
		return nil, fmt.Errorf("apiserver.New: Options.NodeName %q: %s", opts.NodeName, errs[0])
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := kubeapi.New(config, kubeapi.Options{UserAgent: opts.UserAgent, Logger: opts.Logger})
	if err != nil {
		return nil, fmt.Errorf("apiserver.New: %w", err)
	}
	s := &Source{opts: opts, client: client, events: client}
	if opts.EventQPS != 0 {
		if s.events, err = client.WithBudget(opts.EventQPS, opts.EventBurst); err != nil {
			return nil, fmt.Errorf("apiserver.New: %w", err)
		}
	}
	if err := s.addReviewClients(); err != nil {
		return nil, fmt.Errorf("apiserver.New: %w", err)
	}
	s.pods = newPods(s)
	s.pods.guard.Require("apiserver.Pods", opts.Logger, opts.Hooks.Error)
	return s, nil
}

// Pods returns the component that lists and watches the pods of the node. Each call returns the same value.
func (s *Source) Pods() *Pods { return s.pods }
