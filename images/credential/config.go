// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// Format is a format of docker configurations.
type Format uint8

// The formats, with the secret types and files that use them.
const (
	DockerConfigJSON Format = iota // kubernetes.io/dockerconfigjson, ~/.docker/config.json: {"auths": {...}}
	Dockercfg                      // kubernetes.io/dockercfg, ~/.dockercfg: only the value of "auths"
)

// Config is a docker configuration: the logins by registry.
type Config map[string]Login

// Login is a user name and a password for a registry, an entry of a [Config].
type Login struct {
	Username string
	Password string `json:"-"`
	Email    string
}

// String returns the user name. It hides the password, so that logs do not contain it.
func (l Login) String() string { return "login of " + l.Username }

// GoString returns the text of String, so that %#v shows no password.
func (l Login) GoString() string { return l.String() }

// UnmarshalJSON decodes an entry of a docker configuration. If it has the field "auth", the base64 encoding of "user:password",
// that replaces Username and Password.
func (l *Login) UnmarshalJSON(data []byte) error {
	var e struct {
		Username, Password, Email, Auth string
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return err
	}
	*l = Login{Username: e.Username, Password: e.Password, Email: e.Email}
	if e.Auth == "" {
		return nil
	}
	var err error
	l.Username, l.Password, err = decodeAuth(e.Auth)
	return err
}

// decodeAuth decodes auth, the base64 encoding of "user:password", with or without padding.
func decodeAuth(auth string) (username, password string, err error) {
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(strings.TrimSpace(auth), "=") {
		encoding = base64.StdEncoding
	}
	decoded, err := encoding.DecodeString(auth)
	if err != nil {
		return "", "", errors.New("auth: not base64")
	}
	username, password, found := strings.Cut(string(decoded), ":")
	if !found {
		return "", "", errors.New("auth: not the base64 of a user name, a colon and a password")
	}
	return username, password, nil
}

// ParseConfig decodes a docker configuration and returns its credentials by registry. It ignores all other fields.
func ParseConfig(data []byte, format Format) (Config, error) {
	var file struct{ Auths Config }
	var target any = &file
	if format == Dockercfg {
		target = &file.Auths
	}
	if err := json.Unmarshal(data, target); err != nil {
		return nil, fmt.Errorf("docker configuration: %w", hideInput(err))
	}
	return file.Auths, nil
}

// hideInput returns err without parts of the input that encoding/json quotes, because they may contain passwords.
func hideInput(err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON, at byte %d", e.Offset)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("not of the right type, at byte %d", e.Offset)
	}
	return err
}

// Secret is a pull secret of a pod.
type Secret struct {
	Object
	Format Format
	Data   []byte `json:"-"` // value of the key .dockerconfigjson or .dockercfg
}

// String returns the namespace and the name of the secret. It hides its data.
func (s Secret) String() string { return "secret " + s.Namespace + "/" + s.Name }

// GoString returns the text of String, so that %#v shows no data.
func (s Secret) GoString() string { return s.String() }

// LogValue returns the text of String, so that logs contain no data.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// AddSecret adds the credentials of a pull secret to the keyring. A secret without data adds none. The error reports invalid
// data, or invalid entries; valid entries are added even then.
func (k *Keyring) AddSecret(secret Secret) error {
	if len(secret.Data) == 0 {
		return nil
	}
	config, err := ParseConfig(secret.Data, secret.Format)
	if err != nil {
		return fmt.Errorf("%s: %w", secret, err)
	}
	if err := k.Add(config, Source{Kind: FromSecret, Object: secret.Object}); err != nil {
		return fmt.Errorf("%s: %w", secret, err)
	}
	return nil
}
