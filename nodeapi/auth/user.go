// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Names of Kubernetes users and groups, and of an extra attribute, that this package sets.
const (
	anonymousName        = "system:anonymous"
	groupAuthenticated   = "system:authenticated"
	groupUnauthenticated = "system:unauthenticated"
	credentialID         = "authentication.kubernetes.io/credential-id"
)

// User is the authenticated user of a request.
type User struct {
	Name   string
	UID    string              // empty if the credentials have no UID
	Groups []string            // includes system:authenticated or system:unauthenticated
	Extra  map[string][]string // further attributes from the credentials, for authorization
}

// anonymousUser returns the user system:anonymous, for a request without credentials.
func anonymousUser() User { return User{Name: anonymousName, Groups: []string{groupUnauthenticated}} }

// addAuthenticatedGroup returns u with the additional group system:authenticated. It returns an anonymous user unchanged.
func (u User) addAuthenticatedGroup() User {
	if u.Name == anonymousName || slices.Contains(u.Groups, groupAuthenticated) || slices.Contains(u.Groups, groupUnauthenticated) {
		return u
	}
	u.Groups = append(slices.Clone(u.Groups), groupAuthenticated)
	return u
}

// verifyCertificate verifies the client certificate chain[0] with its intermediate certificates, and returns its user. Source:
// x509.go in k8s.io/apiserver/pkg/authentication/request/x509.
func verifyCertificate(chain []*x509.Certificate, roots *x509.CertPool, now time.Time) (User, bool, error) {
	if len(chain) == 0 {
		return User{}, false, nil
	}
	leaf := chain[0]
	o := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(chain) > 1 {
		o.Intermediates = x509.NewCertPool()
		for _, c := range chain[1:] {
			o.Intermediates.AddCert(c)
		}
	}
	if _, err := leaf.Verify(o); err != nil {
		return User{}, false, fmt.Errorf("client certificate of %q, serial number %d: %w", leaf.Subject.CommonName, leaf.SerialNumber, err)
	}
	// Without a user name, the request may have other credentials.
	if leaf.Subject.CommonName == "" {
		return User{}, false, nil
	}
	uid, err := certificateUID(leaf)
	if err != nil {
		return User{}, false, fmt.Errorf("client certificate of %q: %w", leaf.Subject.CommonName, err)
	}
	sum := sha256.Sum256(leaf.Raw)
	return User{
		Name:   leaf.Subject.CommonName,
		UID:    uid,
		Groups: leaf.Subject.Organization,
		Extra:  map[string][]string{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, true, nil
}

// certificateUID returns the UID of the user from the subject of a client certificate. It is empty if the subject contains
// no UID.
func certificateUID(c *x509.Certificate) (string, error) {
	oid := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}
	uid, found := "", false
	for _, name := range c.Subject.Names {
		if !name.Type.Equal(oid) {
			continue
		}
		value, ok := name.Value.(string)
		switch {
		case !ok || value == "":
			return "", errors.New("its UID must be a string that is not empty")
		case found:
			return "", errors.New("it has more than one UID")
		}
		uid, found = value, true
	}
	return uid, nil
}

// convertUser converts the user of a successful token review.
func convertUser(info authenticationv1.UserInfo) User {
	u := User{Name: info.Username, UID: info.UID, Groups: info.Groups}
	if info.Extra != nil {
		u.Extra = make(map[string][]string, len(info.Extra))
		for key, values := range info.Extra {
			u.Extra[key] = values
		}
	}
	return u
}
