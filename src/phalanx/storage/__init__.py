"""How a table is stored: its manifest, leaves and names. Only this package calls Lance."""

from phalanx.storage.lance_log import be_quiet

be_quiet()
