// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The API groups of the plugin configuration and of the plugin protocol.
const (
	configGroup   = "kubelet.config.k8s.io/"
	protocolGroup = "credentialprovider.kubelet.k8s.io/"
)

// PluginConfig is the configuration of all plugins: a CredentialProviderConfig of kubelet.config.k8s.io/v1.
type PluginConfig struct {
	Providers []PluginSpec `json:"providers"`
}

// PluginSpec configures one plugin.
type PluginSpec struct {
	// Name is the name of the executable in [PluginOptions].BinDir.
	Name string `json:"name"`
	// MatchImages are patterns of the repositories that the plugin is for: a host whose labels may have wildcards, an optional
	// port and a path prefix, for example "*.azurecr.io" or "registry.io:8080/path".
	MatchImages []string `json:"matchImages"`
	// DefaultCacheDuration is the cache duration of responses without one. Zero: such responses are not cached.
	DefaultCacheDuration *Duration `json:"defaultCacheDuration"`
	// APIVersion is the version of the protocol: credentialprovider.kubelet.k8s.io/v1, v1beta1 or v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Args are the arguments of the executable.
	Args []string `json:"args,omitempty"`
	// Env is added to the environment of the agent and overrides it.
	Env []EnvVar `json:"env,omitempty"`
	// TokenAttributes requests a token of the pod's service account for the plugin. Nil: no token.
	TokenAttributes *TokenAttributes `json:"tokenAttributes,omitempty"`
}

// EnvVar is an environment variable of a plugin.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TokenAttributes selects the service account data sent to a plugin.
type TokenAttributes struct {
	// ServiceAccountTokenAudience is the audience of the token.
	ServiceAccountTokenAudience string `json:"serviceAccountTokenAudience"`
	// CacheType decides who may use a cached response: "ServiceAccount" or "Token".
	CacheType CacheType `json:"cacheType"`
	// RequireServiceAccount means that the plugin does not run for pods without a service account. It must not be nil.
	RequireServiceAccount *bool `json:"requireServiceAccount"`
	// RequiredServiceAccountAnnotationKeys are annotations sent to the plugin. It does not run if one is missing.
	RequiredServiceAccountAnnotationKeys []string `json:"requiredServiceAccountAnnotationKeys,omitempty"`
	// OptionalServiceAccountAnnotationKeys are annotations sent to the plugin if they exist.
	OptionalServiceAccountAnnotationKeys []string `json:"optionalServiceAccountAnnotationKeys,omitempty"`
}

// CacheType decides who may use a cached response that was requested with a token.
type CacheType string

// The cache types.
const (
	CacheServiceAccount CacheType = "ServiceAccount" // all pods of the service account
	CacheToken          CacheType = "Token"          // requests with the same token
)

// Duration is a [time.Duration] in the JSON format "1h30m".
type Duration time.Duration

// UnmarshalJSON parses a JSON string such as "1h30m".
func (d *Duration) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	v, err := time.ParseDuration(s)
	*d = Duration(v)
	return err
}

// MarshalJSON returns a JSON string such as "1h30m0s".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// ParsePluginConfig decodes a CredentialProviderConfig in JSON and validates it. Unknown fields are an error. The caller
// converts YAML to JSON.
func ParsePluginConfig(data []byte) (PluginConfig, error) {
	var file struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		PluginConfig
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return PluginConfig{}, fmt.Errorf("CredentialProviderConfig: %w", err)
	}
	if file.Kind != "CredentialProviderConfig" {
		return PluginConfig{}, fmt.Errorf("kind: %q is not CredentialProviderConfig", file.Kind)
	}
	if !isVersion(file.APIVersion, configGroup) {
		return PluginConfig{}, fmt.Errorf("apiVersion: %q is not %sv1, v1beta1 or v1alpha1", file.APIVersion, configGroup)
	}
	return file.PluginConfig, file.Validate()
}

// isVersion reports whether version is group followed by v1, v1beta1 or v1alpha1. The group ends in a slash.
func isVersion(version, group string) bool {
	version, ok := strings.CutPrefix(version, group)
	return ok && slices.Contains([]string{"v1", "v1beta1", "v1alpha1"}, version)
}

// Validate returns the joined errors of all invalid fields, or nil.
func (c PluginConfig) Validate() error {
	var errs []error
	if len(c.Providers) == 0 {
		errs = append(errs, errors.New("providers: there must be one"))
	}
	seen := map[string]bool{}
	for _, p := range c.Providers {
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("provider %q: name: there are two", p.Name))
		}
		seen[p.Name] = true
		for _, err := range p.validateSpec() {
			errs = append(errs, fmt.Errorf("provider %q: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (p *PluginSpec) validateSpec() (errs []error) {
	addError := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ ") {
		addError("name: %q is not the name of a file without spaces", p.Name)
	}
	if !isVersion(p.APIVersion, protocolGroup) {
		addError("apiVersion: %q is not %sv1, v1beta1 or v1alpha1", p.APIVersion, protocolGroup)
	}
	if len(p.MatchImages) == 0 {
		addError("matchImages: there must be one")
	}
	for _, m := range p.MatchImages {
		if _, err := parsePattern(m); err != nil {
			addError("matchImages: %q: %w", m, err)
		}
	}
	switch {
	case p.DefaultCacheDuration == nil:
		addError("defaultCacheDuration: must be set")
	case *p.DefaultCacheDuration < 0:
		addError("defaultCacheDuration: %v is negative", time.Duration(*p.DefaultCacheDuration))
	}
	if p.TokenAttributes == nil {
		return errs
	}
	if p.APIVersion != protocolGroup+"v1" {
		addError("tokenAttributes: not part of %s", p.APIVersion)
	}
	for _, err := range p.TokenAttributes.validateAttributes() {
		addError("tokenAttributes: %w", err)
	}
	return errs
}

func (a *TokenAttributes) validateAttributes() (errs []error) {
	addError := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	required, optional := a.RequiredServiceAccountAnnotationKeys, a.OptionalServiceAccountAnnotationKeys
	if a.ServiceAccountTokenAudience == "" {
		addError("serviceAccountTokenAudience: must be set")
	}
	if a.CacheType != CacheServiceAccount && a.CacheType != CacheToken {
		addError("cacheType: %q is neither %s nor %s", a.CacheType, CacheServiceAccount, CacheToken)
	}
	switch {
	case a.RequireServiceAccount == nil:
		addError("requireServiceAccount: must be set")
	case !*a.RequireServiceAccount && len(required) > 0:
		addError("requiredServiceAccountAnnotationKeys: requireServiceAccount is false")
	}
	keys := slices.Sorted(slices.Values(slices.Concat(required, optional)))
	for i, key := range keys {
		switch {
		case key == "":
			addError("annotation keys: one is empty")
		case !isAnnotationKey(key):
			addError("annotation keys: %q is not the key of an annotation, such as example.com/role", key)
		}
		if i > 0 && key == keys[i-1] {
			addError("annotation keys: %q comes twice", key)
		}
	}
	return errs
}
