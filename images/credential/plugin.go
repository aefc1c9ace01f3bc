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

// plugin is one executable and the answers of it that are still good.
type plugin struct {
	spec    PluginSpec
	match   []pattern
	path    string
	opts    PluginOptions
	flights flight.Group[response]
	cache   cache
}

// identity is what a plugin is told of the service account. The zero value is none.
type identity struct {
	account     Object
	annotations map[string]string
	token       string
}

// provide returns what the plugin says about a repository: from the cache, from a run that is under way, or from one
// of its own. Nothing, without an error, when the plugin is not to be asked.
func (p *plugin) provide(ctx context.Context, repository string, pod Pod) (Config, Source, error) {
	target, registry, err := parseTarget(repository)
	if err != nil || !slices.ContainsFunc(p.match, func(m pattern) bool { return m.matches(target) }) {
		return nil, Source{}, nil
	}
	who, ask, err := p.identify(ctx, pod)
	if err != nil || !ask {
		return nil, Source{}, err
	}
	source := Source{}
	if who.account != (Object{}) {
		source = Source{Kind: FromServiceAccount, Object: who.account}
	}
	scope := p.scope(who)
	if config, ok := p.cache.get(scope, repository, registry, time.Now()); ok {
		return config, source, nil
	}
	key := fmt.Sprintf("%s %x %s", repository, sha256.Sum256([]byte(who.token)), scope)
	answer, err := p.flights.Do(ctx, key, func(ctx context.Context) (response, error) {
		return p.run(ctx, repository, who)
	})
	if err != nil {
		return nil, Source{}, err
	}
	config, err := p.accept(answer, who)
	if err != nil {
		return nil, Source{}, err
	}
	keep := p.spec.DefaultCacheDuration
	if answer.CacheDuration != nil {
		keep = answer.CacheDuration
	}
	p.cache.put(scope, answer.cached(repository, registry), config, time.Duration(*keep), time.Now())
	return config, source, nil
}

// identify finds out about the service account of a pod, where the plugin wants that, and whether to ask it at all.
func (p *plugin) identify(ctx context.Context, pod Pod) (who identity, ask bool, err error) {
	a := p.spec.TokenAttributes
	if a == nil {
		return who, true, nil
	}
	if pod.ServiceAccount == "" {
		return who, !*a.RequireServiceAccount, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	account, err := p.opts.Accounts.ServiceAccount(ctx, pod.Namespace, pod.ServiceAccount)
	if err != nil {
		return who, false, fmt.Errorf("service account %s/%s: %w", pod.Namespace, pod.ServiceAccount, err)
	}
	who.account = Object{UID: account.UID, Namespace: pod.Namespace, Name: pod.ServiceAccount}
	who.annotations = map[string]string{}
	for _, key := range a.RequiredServiceAccountAnnotationKeys {
		value, ok := account.Annotations[key]
		if !ok {
			return who, false, nil // how a workload stays out of it
		}
		who.annotations[key] = value
	}
	for _, key := range a.OptionalServiceAccountAnnotationKeys {
		if value, ok := account.Annotations[key]; ok {
			who.annotations[key] = value
		}
	}
	who.token, err = p.opts.Accounts.Token(ctx, TokenRequest{
		Account: who.account, Audience: a.ServiceAccountTokenAudience, Pod: pod,
	})
	if err != nil {
		return who, false, fmt.Errorf("token of service account %s/%s: %w", pod.Namespace, pod.ServiceAccount, err)
	}
	return who, true, nil
}

// scope is whom an answer may be kept for: everybody, the pods of a service account, or the holder of a token.
func (p *plugin) scope(who identity) string {
	if who.account == (Object{}) {
		return ""
	}
	hash := ""
	if p.spec.TokenAttributes.CacheType == CacheToken {
		hash = fmt.Sprintf("%x", sha256.Sum256([]byte(who.token)))
	}
	scope, _ := json.Marshal([]any{who.account, who.annotations, hash}) // of strings; it cannot fail
	return string(scope)
}

// accept turns an answer into a configuration, unless the plugin made the token the password and lets it be used for
// longer than that.
func (p *plugin) accept(answer response, who identity) (Config, error) {
	config := make(Config, len(answer.Auth))
	for key, auth := range answer.Auth {
		if who.token != "" && auth.Password == who.token && p.spec.TokenAttributes.CacheType != CacheToken {
			return nil, errors.New("the answer's password is the token: cacheType must be Token for that")
		}
		config[key] = Login{Username: auth.Username, Password: auth.Password}
	}
	return config, nil
}
