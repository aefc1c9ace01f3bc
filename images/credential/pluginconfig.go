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

// The groups of the two formats: of the file that names plugins, and of what is said to a plugin.
const (
	configGroup   = "kubelet.config.k8s.io/"
	protocolGroup = "credentialprovider.kubelet.k8s.io/"
)

// PluginConfig says which plugins there are: a CredentialProviderConfig of kubelet.config.k8s.io/v1.
type PluginConfig struct {
	Providers []PluginSpec `json:"providers"`
}

// PluginSpec is one plugin.
type PluginSpec struct {
	// Name is the name of the executable in [PluginOptions].BinDir.
	Name string `json:"name"`
	// MatchImages are the repositories that the plugin is asked about: a host whose labels may have wildcards, a
	// port and the beginning of a path, such as "*.azurecr.io" or "registry.io:8080/path".
	MatchImages []string `json:"matchImages"`
	// DefaultCacheDuration is how long an answer is good for that does not say so itself. Zero: it is not kept.
	DefaultCacheDuration *Duration `json:"defaultCacheDuration"`
	// APIVersion is that of the protocol: credentialprovider.kubelet.k8s.io/v1, v1beta1 or v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Args are the arguments that the executable is run with.
	Args []string `json:"args,omitempty"`
	// Env is added to the environment of the agent, and wins over it.
	Env []EnvVar `json:"env,omitempty"`
	// TokenAttributes asks for a token of the pod's service account. Nil: the plugin does not want one.
	TokenAttributes *TokenAttributes `json:"tokenAttributes,omitempty"`
}

// EnvVar is one variable of a plugin's environment.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TokenAttributes says which token a plugin is handed, and what else of the service account.
type TokenAttributes struct {
	// ServiceAccountTokenAudience is whom the token is for.
	ServiceAccountTokenAudience string `json:"serviceAccountTokenAudience"`
	// CacheType is what an answer is kept for: "ServiceAccount" or "Token".
	CacheType CacheType `json:"cacheType"`
	// RequireServiceAccount: the plugin is not asked for a pod without a service account. It must be set.
	RequireServiceAccount *bool `json:"requireServiceAccount"`
	// RequiredServiceAccountAnnotationKeys are handed to the plugin, which is not asked when one is missing.
	RequiredServiceAccountAnnotationKeys []string `json:"requiredServiceAccountAnnotationKeys,omitempty"`
	// OptionalServiceAccountAnnotationKeys are handed to the plugin where they are there.
	OptionalServiceAccountAnnotationKeys []string `json:"optionalServiceAccountAnnotationKeys,omitempty"`
}

// CacheType is what an answer that came of a token is kept for.
type CacheType string

// The cache types.
const (
	CacheServiceAccount CacheType = "ServiceAccount" // for all pods of the service account
	CacheToken          CacheType = "Token"          // for as long as the token is the same
)

// Duration is a [time.Duration] that is written as "1h30m".
type Duration time.Duration

// UnmarshalJSON reads a string.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	v, err := time.ParseDuration(s)
	*d = Duration(v)
	return err
}

// MarshalJSON writes a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// ParsePluginConfig reads a CredentialProviderConfig in JSON and validates it; YAML has to be turned into JSON first.
// A field that is not known is an error.
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

// isVersion reports whether an apiVersion is one of those that both formats have.
func isVersion(v, group string) bool {
	v, ok := strings.CutPrefix(v, group)
	return ok && slices.Contains([]string{"v1", "v1beta1", "v1alpha1"}, v)
}

// Validate reports everything that is wrong with a configuration.
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
		for _, err := range p.validate() {
			errs = append(errs, fmt.Errorf("provider %q: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (p *PluginSpec) validate() (errs []error) {
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ ") {
		complain("name: %q is not the name of a file without spaces", p.Name)
	}
	if !isVersion(p.APIVersion, protocolGroup) {
		complain("apiVersion: %q is not %sv1, v1beta1 or v1alpha1", p.APIVersion, protocolGroup)
	}
	if len(p.MatchImages) == 0 {
		complain("matchImages: there must be one")
	}
	for _, m := range p.MatchImages {
		if _, err := parsePattern(m); err != nil {
			complain("matchImages: %q: %w", m, err)
		}
	}
	switch {
	case p.DefaultCacheDuration == nil:
		complain("defaultCacheDuration: must be set")
	case *p.DefaultCacheDuration < 0:
		complain("defaultCacheDuration: %v is negative", time.Duration(*p.DefaultCacheDuration))
	}
	if p.TokenAttributes == nil {
		return errs
	}
	if p.APIVersion != protocolGroup+"v1" {
		complain("tokenAttributes: not part of %s", p.APIVersion)
	}
	for _, err := range p.TokenAttributes.validate() {
		complain("tokenAttributes: %w", err)
	}
	return errs
}

func (a *TokenAttributes) validate() (errs []error) {
	complain := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	required, optional := a.RequiredServiceAccountAnnotationKeys, a.OptionalServiceAccountAnnotationKeys
	if a.ServiceAccountTokenAudience == "" {
		complain("serviceAccountTokenAudience: must be set")
	}
	if a.CacheType != CacheServiceAccount && a.CacheType != CacheToken {
		complain("cacheType: %q is neither %s nor %s", a.CacheType, CacheServiceAccount, CacheToken)
	}
	switch {
	case a.RequireServiceAccount == nil:
		complain("requireServiceAccount: must be set")
	case !*a.RequireServiceAccount && len(required) > 0:
		complain("requiredServiceAccountAnnotationKeys: requireServiceAccount is false")
	}
	keys := slices.Sorted(slices.Values(slices.Concat(required, optional)))
	for i, key := range keys {
		switch {
		case key == "":
			complain("annotation keys: one is empty")
		case !isAnnotationKey(key):
			complain("annotation keys: %q is not the key of an annotation, such as example.com/role", key)
		}
		if i > 0 && key == keys[i-1] {
			complain("annotation keys: %q comes twice", key)
		}
	}
	return errs
}
