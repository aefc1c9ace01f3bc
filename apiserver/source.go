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

// Options tunes a [Source]. The zero value lacks the name of the node.
type Options struct {
	NodeName  string // of the Node object, whose pods these are; required
	UserAgent string // empty: "nodeagent"
	// WaitForNode returns once the API server has the Node, with the labels that admission needs. Nil: nothing waits.
	WaitForNode func(ctx context.Context) error
	Logger      *slog.Logger // nil discards
	Hooks       Hooks
}

// Hooks are called with no lock held. Any may be nil; they must not block.
type Hooks struct {
	// Error is called for each request for the pods of the node that failed. It is repeated after a back-off.
	Error func(err error)
}

// Source is an API server as the source of pods, and where what becomes of them is reported. Make one with [New].
type Source struct {
	opts   Options
	client *kubeapi.Client
	pods   *Pods

	tokenReviews  TokenReviews
	accessReviews AccessReviews
}

// New returns a Source for the API server of a configuration, which is copied. It sends nothing: the parts of a Source do, when
// they are run. An error names what is missing in the configuration or the options.
func New(config *rest.Config, o Options) (*Source, error) {
	if o.NodeName == "" {
		return nil, errors.New("apiserver.New: Options.NodeName: required: the name of the Node whose pods are to run")
	}
	if errs := validation.NameIsDNSSubdomain(o.NodeName, false); len(errs) > 0 {
		return nil, fmt.Errorf("apiserver.New: Options.NodeName %q: %s", o.NodeName, errs[0])
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := kubeapi.New(config, kubeapi.Options{UserAgent: o.UserAgent, Logger: o.Logger})
	if err != nil {
		return nil, fmt.Errorf("apiserver.New: %w", err)
	}
	s := &Source{opts: o, client: client}
	if err := s.addReviewClients(); err != nil {
		return nil, fmt.Errorf("apiserver.New: %w", err)
	}
	s.pods = newPods(s)
	s.pods.guard.Require("apiserver.Pods", o.Logger, o.Hooks.Error)
	return s, nil
}

// Pods returns the pods of the node. It is always the same.
func (s *Source) Pods() *Pods { return s.pods }
