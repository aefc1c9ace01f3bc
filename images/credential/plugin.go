// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/images/internal/flight"
)

// plugin is one executable with its configuration and cached responses.
type plugin struct {
	spec          PluginSpec
	matchPatterns []registryPattern
	path          string
	opts          PluginOptions
	sharedRuns    flight.Group[pluginResponse]
	cache         responseCache
}

// tokenIdentity is the service account data sent to a plugin. The zero value means none.
type tokenIdentity struct {
	object      Object
	annotations map[string]string
	token       string
}

// readCredentials returns the plugin's credentials for the repository, from the cache or from a run that concurrent calls
// share. origin is the node or a service account.
func (p *plugin) readCredentials(ctx context.Context, repository string, pod Pod) (credentials Config, origin Source, err error) {
	target, registry, err := parseTarget(repository)
	if err != nil || !slices.ContainsFunc(p.matchPatterns, func(m registryPattern) bool { return m.matchesTarget(target) }) {
		return nil, Source{}, nil
	}
	account, shouldRun, err := p.readIdentity(ctx, pod)
	if err != nil || !shouldRun {
		return nil, Source{}, err
	}
	source := Source{}
	if account.object != (Object{}) {
		source = Source{Kind: FromServiceAccount, Object: account.object}
	}
	scope := p.cacheScope(account)
	if config, ok := p.cache.get(scope, repository, registry, time.Now()); ok {
		return config, source, nil
	}
	key := fmt.Sprintf("%s %x %s", repository, sha256.Sum256([]byte(account.token)), scope)
	answer, err := p.sharedRuns.Do(ctx, key, func(ctx context.Context) (pluginResponse, error) {
		return p.runOnce(ctx, repository, account)
	})
	if err != nil {
		return nil, Source{}, err
	}
	config, err := p.convertResponse(answer, account)
	if err != nil {
		return nil, Source{}, err
	}
	duration := p.spec.DefaultCacheDuration
	if answer.CacheDuration != nil {
		duration = answer.CacheDuration
	}
	p.cache.put(scope, answer.cacheKey(repository, registry), config, time.Duration(*duration), time.Now())
	return config, source, nil
}

// readIdentity returns the service account data that the plugin is configured to receive, including a token. shouldRun is
// false if the plugin must not run for this pod.
func (p *plugin) readIdentity(ctx context.Context, pod Pod) (identity tokenIdentity, shouldRun bool, err error) {
	a := p.spec.TokenAttributes
	if a == nil {
		return identity, true, nil
	}
	if pod.ServiceAccount == "" {
		return identity, !*a.RequireServiceAccount, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	account, err := p.opts.Accounts.ServiceAccount(ctx, pod.Namespace, pod.ServiceAccount)
	if err != nil {
		return identity, false, fmt.Errorf("service account %s/%s: %w", pod.Namespace, pod.ServiceAccount, err)
	}
	identity.object = Object{UID: account.UID, Namespace: pod.Namespace, Name: pod.ServiceAccount}
	identity.annotations = map[string]string{}
	for _, key := range a.RequiredServiceAccountAnnotationKeys {
		value, ok := account.Annotations[key]
		if !ok {
			return identity, false, nil // by omitting the annotation, a pod opts out
		}
		identity.annotations[key] = value
	}
	for _, key := range a.OptionalServiceAccountAnnotationKeys {
		if value, ok := account.Annotations[key]; ok {
			identity.annotations[key] = value
		}
	}
	identity.token, err = p.opts.Accounts.Token(ctx, TokenRequest{
		Account: identity.object, Audience: a.ServiceAccountTokenAudience, Pod: pod,
	})
	if err != nil {
		return identity, false, fmt.Errorf("token of service account %s/%s: %w", pod.Namespace, pod.ServiceAccount, err)
	}
	return identity, true, nil
}

// cacheScope returns a part of the cache key that is equal for the pods that may share a response, such as their service
// account.
func (p *plugin) cacheScope(identity tokenIdentity) string {
	if identity.object == (Object{}) {
		return ""
	}
	hash := ""
	if p.spec.TokenAttributes.CacheType == CacheToken {
		hash = fmt.Sprintf("%x", sha256.Sum256([]byte(identity.token)))
	}
	scope, _ := json.Marshal([]any{identity.object, identity.annotations, hash}) // strings only, so it cannot fail
	return string(scope)
}

// convertResponse returns the credentials in the response of a plugin.
func (p *plugin) convertResponse(response pluginResponse, identity tokenIdentity) (Config, error) {
	config := make(Config, len(response.Auth))
	for key, auth := range response.Auth {
		// Otherwise the token would stay in the cache after it has expired.
		if identity.token != "" && auth.Password == identity.token && p.spec.TokenAttributes.CacheType != CacheToken {
			return nil, errors.New("the answer's password is the token: cacheType must be Token for that")
		}
		config[key] = Login{Username: auth.Username, Password: auth.Password}
	}
	return config, nil
}
