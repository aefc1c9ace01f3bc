// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// PluginOptions configures [Plugins].
type PluginOptions struct {
	BinDir   string        // directory of the executables; empty: the working directory
	Timeout  time.Duration // timeout of one run, and of the calls of Accounts before it; zero: 1 minute
	Accounts Accounts      // for plugins with TokenAttributes; nil: such plugins are an error
}

// Accounts reads service accounts and requests their tokens, usually from the API server.
type Accounts interface {
	// ServiceAccount returns the service account with this name.
	ServiceAccount(ctx context.Context, namespace, name string) (ServiceAccount, error)
	// Token returns a token of a service account bound to a pod.
	Token(ctx context.Context, r TokenRequest) (string, error)
}

// ServiceAccount has the data of a service account for plugins.
type ServiceAccount struct {
	UID         string
	Annotations map[string]string
}

// TokenRequest describes the token requested by [Accounts].Token.
type TokenRequest struct {
	Account  Object
	Audience string
	Pod      Pod // the token is bound to this pod
}

// Plugins is a [Provider] that runs credential provider plugins: executables that read a CredentialProviderRequest from
// standard input and write a CredentialProviderResponse to standard output (KEP-2133, KEP-4412). Responses are cached for as
// long as they allow. Source: pkg/credentialprovider/plugin/plugin.go.
type Plugins struct {
	plugins []*plugin
}

var _ Provider = (*Plugins)(nil)

// NewPlugins finds the executables of the plugins in config. It runs no plugin. It returns an error if an executable is
// missing, or if config or opts is invalid.
func NewPlugins(config PluginConfig, opts PluginOptions) (*Plugins, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("plugin configuration: %w", err)
	}
	if opts.Timeout <= 0 {
		opts.Timeout = time.Minute
	}
	ps := &Plugins{}
	for _, spec := range config.Providers {
		path, err := exec.LookPath(filepath.Join(opts.BinDir, spec.Name))
		if err != nil {
			return nil, fmt.Errorf("provider %q: %w", spec.Name, err)
		}
		if spec.TokenAttributes != nil && opts.Accounts == nil {
			return nil, fmt.Errorf("provider %q: tokenAttributes: tokens need an API server", spec.Name)
		}
		p := &plugin{spec: spec, path: path, opts: opts}
		for _, m := range spec.MatchImages {
			pattern, err := parsePattern(m)
			if err != nil {
				return nil, fmt.Errorf("provider %q: matchImages: %w", spec.Name, err)
			}
			p.matchPatterns = append(p.matchPatterns, pattern)
		}
		ps.plugins = append(ps.plugins, p)
	}
	return ps, nil
}

// Credentials runs each plugin that is configured for the repository, in sequence, and returns their credentials. The error
// joins the errors of failed plugins. The returned credentials are valid despite an error.
func (ps *Plugins) Credentials(ctx context.Context, repository string, pod Pod) ([]Credential, error) {
	ring := &Keyring{}
	var errs []error
	for _, p := range ps.plugins {
		config, source, err := p.readCredentials(ctx, repository, pod)
		if err == nil {
			err = ring.Add(config, source)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("credential provider %s for %s: %w", p.spec.Name, repository, err))
		}
	}
	return ring.Lookup(repository), errors.Join(errs...)
}
