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

// Names of the Kubernetes API for users that a server makes up.
const (
	anonymousName        = "system:anonymous"
	groupAuthenticated   = "system:authenticated"
	groupUnauthenticated = "system:unauthenticated"
	credentialID         = "authentication.kubernetes.io/credential-id"
)

// User is who sends a request.
type User struct {
	Name   string
	UID    string              // empty where the credentials have none
	Groups []string            // with system:authenticated, or system:unauthenticated
	Extra  map[string][]string // what else the credentials say, for authorization
}

// anonymous is the user of a request without credentials.
func anonymous() User { return User{Name: anonymousName, Groups: []string{groupUnauthenticated}} }

// authenticated adds the group of all users that have shown who they are.
func (u User) authenticated() User {
	if u.Name == anonymousName || slices.Contains(u.Groups, groupAuthenticated) || slices.Contains(u.Groups, groupUnauthenticated) {
		return u
	}
	u.Groups = append(slices.Clone(u.Groups), groupAuthenticated)
	return u
}

// certified returns the user of a client certificate: the common name, with the organizations as groups. chain is what the client has
// sent, its own certificate first; roots are whom it may be signed by, at the time now, for client authentication. The bool is false for a
// certificate without a common name, which is no user and no error. Source: x509.go in k8s.io/apiserver/pkg/authentication/request/x509.
func certified(chain []*x509.Certificate, roots *x509.CertPool, now time.Time) (User, bool, error) {
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
	if leaf.Subject.CommonName == "" {
		return User{}, false, nil
	}
	uid, err := uidOf(leaf)
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

// uidOf returns the UID that a certificate names, if it does.
func uidOf(c *x509.Certificate) (string, error) {
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

// reviewed returns the user of a token that the API server knows.
func reviewed(info authenticationv1.UserInfo) User {
	u := User{Name: info.Username, UID: info.UID, Groups: info.Groups}
	if info.Extra != nil {
		u.Extra = make(map[string][]string, len(info.Extra))
		for key, values := range info.Extra {
			u.Extra[key] = values
		}
	}
	return u
}
