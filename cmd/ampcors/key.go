package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ampcors/ampcors/announce/indexnow"
	"github.com/ampcors/ampcors/announce/updatecache"
)

// keyBits is the length of a new RSA key. The example in the documentation of update-cache
// has the same length.
const keyBits = 2048

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key updatecache FILE | updatecache --public FILE | indexnow",
		Short: "Make a key for update-cache or IndexNow",
		Long: "Make a key for update-cache or IndexNow. Keep it secret. The key for update-cache is an RSA key in PEM, " +
			"which is written to a new file that only you can read. The key for IndexNow is printed.\n\n" +
			"With --public, read the RSA key from a file, and print what the site serves at " + updatecache.KeyPath + ".",
		Example: "  ampcors key updatecache private.pem\n  ampcors key updatecache --public private.pem >apikey.pub\n  " +
			"ampcors key indexnow",
		ValidArgs: []string{"updatecache", "indexnow"},
	}
	public := cmd.Flags().String("public", "", "file with the RSA key whose public key is printed")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) < 1 || len(args) > 2 {
			return errors.New("want updatecache and a file, updatecache and --public, or indexnow")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch kind, hasFile := args[0], len(args) == 2; {
		case kind == "indexnow" && !hasFile && *public == "":
			key := string(indexnow.NewKey())
			_, err := fmt.Fprintln(cmd.OutOrStdout(), key)
			fmt.Fprintf(cmd.ErrOrStderr(), "Serve it as the only text of https://www.example.com/%s.txt, as text/plain, and "+
				"at each other host of your pages.\n"+
				"Then set INDEXNOW_KEY to it, and check: ampcors verify www.example.com\n", key)
			return err
		case kind == "updatecache" && !hasFile && *public != "":
			key, err := readKey(cmd.ErrOrStderr(), *public)
			if err != nil {
				return err
			}
			der, err := x509.MarshalPKIXPublicKey(key.Public())
			if err != nil {
				return err
			}
			return pem.Encode(cmd.OutOrStdout(), &pem.Block{Type: "PUBLIC KEY", Bytes: der})
		case kind == "updatecache" && hasFile && *public == "":
			if err := writeKey(args[1]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "The key is in %[1]s. Serve what ampcors key updatecache --public %[1]s prints at "+
				"%[2]s of each site, as text/plain.\n"+
				"Then check: ampcors verify --key %[1]s www.example.com\n", args[1], updatecache.KeyPath)
			return nil
		case kind == "updatecache" && !hasFile:
			return errors.New("there is no file for the key; want ampcors key updatecache private.pem")
		}
		return fmt.Errorf("%q is wrong; want updatecache and a file, updatecache and --public, or indexnow",
			strings.Join(args, " "))
	}
	return cmd
}

// writeKey makes an RSA key, and writes it to a new file that only its owner can read. It never
// replaces a file: the key in it may be in use.
func writeKey(file string) error {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists, and a key is never overwritten; want another name", file)
	} else if err != nil {
		return err
	}
	if err := errors.Join(pem.Encode(f, &pem.Block{Type: "PRIVATE KEY", Bytes: der}), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}
