// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/reference"
)

// VerifyPolicy selects the images on the node that a pod may use only with credentials that could have pulled them. The values
// are those of the kubelet's imagePullCredentialsVerificationPolicy. Empty: [NeverVerifyPreloadedImages]. Source:
// pkg/kubelet/images/pullmanager/image_pull_policies.go.
type VerifyPolicy string

// The verification policies.
const (
	NeverVerify                  VerifyPolicy = "NeverVerify"                  // no image
	NeverVerifyPreloadedImages   VerifyPolicy = "NeverVerifyPreloadedImages"   // images pulled by an agent
	NeverVerifyAllowlistedImages VerifyPolicy = "NeverVerifyAllowlistedImages" // images that are not in Options.Allowlist
	AlwaysVerify                 VerifyPolicy = "AlwaysVerify"                 // all images
)

// verifier applies a VerifyPolicy and its allowlist to image names.
type verifier struct {
	policy   VerifyPolicy
	names    []string // image names without tag and digest
	prefixes []string // prefixes of image names, ending in a slash
}

// newVerifier returns a verifier for the policy and the allowlist. It returns an error if one of them is invalid.
func newVerifier(policy VerifyPolicy, allowlist []string) (verifier, error) {
	v := verifier{policy: policy}
	switch policy {
	case "":
		v.policy = NeverVerifyPreloadedImages
	case NeverVerify, NeverVerifyPreloadedImages, AlwaysVerify, NeverVerifyAllowlistedImages:
	default:
		return verifier{}, fmt.Errorf("verify: %q is none of %s, %s, %s and %s",
			policy, NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify)
	}
	if len(allowlist) > 0 && v.policy != NeverVerifyAllowlistedImages {
		return verifier{}, fmt.Errorf("allowlist: %q: only valid with %s, and verify is %s", allowlist, NeverVerifyAllowlistedImages, v.policy)
	}
	for _, p := range allowlist {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && len(prefix) > 1 &&
			strings.HasSuffix(prefix, "/") && !strings.ContainsAny(prefix, "* \t\n") {
			v.prefixes = append(v.prefixes, prefix)
			continue
		}
		if ref, err := reference.Parse(p); err != nil || ref.Short != p {
			return verifier{}, fmt.Errorf("allowlist: %q: want the name of an image without tag and digest, such as ghcr.io/team/app, or ghcr.io/team/*", p)
		}
		v.names = append(v.names, p)
	}
	return v, nil
}

// isExempt reports whether every pod may use images with this name, because of the policy or an entry of the allowlist.
func (v verifier) isExempt(name string) bool {
	switch v.policy {
	case NeverVerify:
		return true
	case NeverVerifyAllowlistedImages:
		return slices.Contains(v.names, name) ||
			slices.ContainsFunc(v.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	default:
		return false
	}
}

// allowsPreloaded reports whether the policy is [NeverVerifyPreloadedImages]: every pod may use images that no agent has
// pulled, for example imported images.
func (v verifier) allowsPreloaded() bool { return v.policy == NeverVerifyPreloadedImages }

// maxRecordedSecrets is the number of secrets in a record at which no further matching secret is added.
const maxRecordedSecrets = 100

// matchCredentials reports whether a pod with these credentials may use an image. Source: MustAttemptImagePull in
// pkg/kubelet/images/pullmanager/image_pull_manager.go.
func matchCredentials(recorded recordedCredentials, credentials []credential.Credential) (allowed bool, learned recordedCredentials) {
	canAdd := len(recorded.KubernetesSecrets) < maxRecordedSecrets
	for _, c := range credentials {
		if c.Source.Kind != credential.FromSecret {
			continue
		}
		shown := recordedSecret{recordedObject(c.Source.Object), c.Hash()}
		for _, known := range recorded.KubernetesSecrets {
			sameHash := known.CredentialHash == shown.CredentialHash
			sameSecret := known.recordedObject == shown.recordedObject
			if !sameHash && (!sameSecret || !canAdd) {
				continue
			}
			if canAdd && (!sameHash || !sameSecret) {
				// The secret matches only by content or only by name and UID: the caller adds it to the record.
				learned.KubernetesSecrets = []recordedSecret{shown}
			}
			return true, learned
		}
	}
	for _, c := range credentials {
		if c.Source.Kind == credential.FromServiceAccount {
			return slices.Contains(recorded.KubernetesServiceAccounts, recordedObject(c.Source.Object)), learned
		}
	}
	return false, learned
}
