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

// PluginOptions tune [Plugins].
type PluginOptions struct {
	BinDir   string        // where the executables are; empty: the working directory
	Timeout  time.Duration // of one run, and of asking Accounts before it; zero means one minute
	Accounts Accounts      // for plugins with TokenAttributes; nil: there may be none
}

// Accounts knows service accounts and gets tokens for them.
type Accounts interface {
	// ServiceAccount returns a service account.
	ServiceAccount(ctx context.Context, namespace, name string) (ServiceAccount, error)
	// Token returns a token that is bound to a pod.
	Token(ctx context.Context, r TokenRequest) (string, error)
}

// ServiceAccount is what a plugin may be told of a service account.
type ServiceAccount struct {
	UID         string
	Annotations map[string]string
}

// TokenRequest says which token is wanted.
type TokenRequest struct {
	Account  Object
	Audience string
	Pod      Pod // that the token is bound to
}

// Plugins is a [Provider] that asks credential provider plugins: executables that read a CredentialProviderRequest from
// their standard input and write a CredentialProviderResponse to their standard output (KEP-2133, KEP-4412). Answers
// are kept for as long as they say. Source: pkg/credentialprovider/plugin/plugin.go.
type Plugins struct {
	plugins []*plugin
}

var _ Provider = (*Plugins)(nil)

// NewPlugins looks for the executables, and returns an error when one is not there or the configuration is not valid.
// It runs nothing.
func NewPlugins(c PluginConfig, o PluginOptions) (*Plugins, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("plugin configuration: %w", err)
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Minute
	}
	ps := &Plugins{}
	for _, spec := range c.Providers {
		path, err := exec.LookPath(filepath.Join(o.BinDir, spec.Name))
		if err != nil {
			return nil, fmt.Errorf("provider %q: %w", spec.Name, err)
		}
		if spec.TokenAttributes != nil && o.Accounts == nil {
			return nil, fmt.Errorf("provider %q: tokenAttributes: there is nobody to get tokens from", spec.Name)
		}
		p := &plugin{spec: spec, path: path, opts: o}
		for _, m := range spec.MatchImages {
			pattern, err := parsePattern(m)
			if err != nil {
				return nil, fmt.Errorf("provider %q: matchImages: %w", spec.Name, err)
			}
			p.match = append(p.match, pattern)
		}
		ps.plugins = append(ps.plugins, p)
	}
	return ps, nil
}

// Credentials asks the plugins that are for the repository, one after the other, and returns those credentials of
// their answers that match it. The error joins those of plugins that failed.
func (ps *Plugins) Credentials(ctx context.Context, repository string, pod Pod) ([]Credential, error) {
	ring := &Keyring{}
	var errs []error
	for _, p := range ps.plugins {
		config, source, err := p.provide(ctx, repository, pod)
		if err == nil {
			err = ring.Add(config, source)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("credential provider %s for %s: %w", p.spec.Name, repository, err))
		}
	}
	return ring.Lookup(repository), errors.Join(errs...)
}
