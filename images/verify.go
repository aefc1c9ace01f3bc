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

// Verify says for which images that are present a pod has to show that it could have pulled them. The values are those
// of the kubelet's imagePullCredentialsVerificationPolicy. An empty one is [NeverVerifyPreloadedImages].
// Source: pkg/kubelet/images/pullmanager/image_pull_policies.go.
type Verify string

// The verification policies.
const (
	NeverVerify                  Verify = "NeverVerify"                  // for none
	NeverVerifyPreloadedImages   Verify = "NeverVerifyPreloadedImages"   // for those that an agent has pulled
	NeverVerifyAllowlistedImages Verify = "NeverVerifyAllowlistedImages" // for those that are not in Options.Allowlist
	AlwaysVerify                 Verify = "AlwaysVerify"                 // for all
)

// verifier decides by the policy alone.
type verifier struct {
	policy   Verify
	names    []string // names of images without tag and digest
	prefixes []string // ending in a slash
}

func newVerifier(policy Verify, allowlist []string) (verifier, error) {
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
		return verifier{}, fmt.Errorf("allowlist: %q: only %s has one, and verify is %s", allowlist, NeverVerifyAllowlistedImages, v.policy)
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

// exempt reports whether an image is for every pod, whatever is known about it.
func (v verifier) exempt(short string) bool {
	switch v.policy {
	case NeverVerify:
		return true
	case NeverVerifyAllowlistedImages:
		return slices.Contains(v.names, short) ||
			slices.ContainsFunc(v.prefixes, func(p string) bool { return strings.HasPrefix(short, p) })
	default:
		return false
	}
}

// preloaded reports whether an image that no agent has pulled is for every pod.
func (v verifier) preloaded() bool { return v.policy == NeverVerifyPreloadedImages }

// maxSecrets is how many secrets may be in a record for another to be added because it is as good as one of them.
const maxSecrets = 100

// access decides whether one of a pod's credentials opens an image that was pulled with others: the same user and
// password, the same secret, whose content has changed since, or the same service account. learned is what to add to
// the record, so that the next pod with the same is recognised.
// Source: pkg/kubelet/images/pullmanager/image_pull_manager.go (MustAttemptImagePull).
func access(recorded recordedCredentials, shown []credential.Credential) (ok bool, learned recordedCredentials) {
	room := len(recorded.KubernetesSecrets) < maxSecrets
	for _, c := range shown {
		if c.Source.Kind != credential.FromSecret {
			continue
		}
		mine := recordedSecret{recordedObject(c.Source.Object), c.Hash()}
		for _, theirs := range recorded.KubernetesSecrets {
			sameHash := theirs.CredentialHash == mine.CredentialHash
			sameSecret := theirs.recordedObject == mine.recordedObject
			if !sameHash && (!sameSecret || !room) {
				continue
			}
			if room && (!sameHash || !sameSecret) {
				learned.KubernetesSecrets = []recordedSecret{mine}
			}
			return true, learned
		}
	}
	for _, c := range shown {
		if c.Source.Kind == credential.FromServiceAccount {
			return slices.Contains(recorded.KubernetesServiceAccounts, recordedObject(c.Source.Object)), learned
		}
	}
	return false, learned
}
