"""Console keyboards that systemd's localed lists, as the installer of SLES 16 asks it.

A layout, with its variant behind a hyphen. An installer that is told another name drops all of its
answers and waits for somebody, so it is refused before.
"""

from __future__ import annotations

_NAMES = """
al al-plisi at at-mac at-nodeadkeys az ba ba-alternatequotes ba-unicode ba-unicodeus ba-us be
be-iso-alternate be-latin1 be-nodeadkeys be-oss be-oss_latin9 be-wang bg-cp1251 bg-cp855 br
br-abnt br-abnt-alt br-abnt2 br-abnt2-old br-dvorak br-latin1-abnt2 br-latin1-us br-nativo
br-nativo-epo br-nativo-us br-nodeadkeys br-thinkpad by by-cp1251 by-latin ca ca-eng ca-fr-dvorak
ca-fr-legacy ca-multix cf ch ch-de_mac ch-de_nodeadkeys ch-fr ch-fr_mac ch-fr_nodeadkeys ch-legacy
cm cm-azerty cm-dvorak cm-french cm-mmuock cm-qwerty cn cn-altgr-pinyin cn-latin1 cz cz-bksl
cz-cp1250 cz-dvorak-ucw cz-lat2 cz-lat2-prog cz-lat2-us cz-qwerty cz-qwerty-mac cz-qwerty_bksl
cz-rus cz-us-qwertz cz-winkeys cz-winkeys-qwerty de de-T3 de-deadacute de-deadgraveacute
de-deadtilde de-dsb de-dsb_qwertz de-dvorak de-e1 de-e2 de-latin1 de-latin1-nodeadkeys de-mac
de-mac_nodeadkeys de-mobii de-neo de-nodeadkeys de-qwerty de-ro de-ro_nodeadkeys de-tr de-us dk
dk-dvorak dk-latin1 dk-mac dk-mac_nodeadkeys dk-nodeadkeys dk-winkeys dz dz-azerty-deadkeys
dz-qwerty-gb-deadkeys dz-qwerty-us-deadkeys ee ee-dvorak ee-nodeadkeys ee-us en en-latin9 epo
epo-legacy es es-ast es-cat es-cp850 es-deadtilde es-dvorak es-nodeadkeys es-olpc es-winkeys et
et-nodeadkeys fa fi fi-classic fi-kotoistus fi-mac fi-nodeadkeys fi-smi fi-winkeys fo
fo-nodeadkeys fr fr-afnor fr-azerty fr-bepo fr-bepo-latin9 fr-bepo_afnor fr-bepo_latin9 fr-bre
fr-dvorak fr-latin1 fr-latin9 fr-latin9_nodeadkeys fr-mac fr-nodeadkeys fr-oci fr-oss
fr-oss_latin9 fr-oss_nodeadkeys fr-pc fr-us gb gb-colemak gb-colemak_dh gb-dvorak gb-dvorakukp
gb-extd gb-gla gb-intl gb-mac gb-mac_intl gb-pl ge ge-ergonomic ge-mess ge-ru gh gh-akan gh-avn
gh-ewe gh-fula gh-ga gh-generic gh-gillbt gh-hausa gr gr-pc hr hr-alternatequotes hr-unicode
hr-unicodeus hr-us hu hu-101_qwerty_comma_dead hu-101_qwerty_comma_nodead hu-101_qwerty_dot_dead
hu-101_qwerty_dot_nodead hu-101_qwertz_comma_dead hu-101_qwertz_comma_nodead
hu-101_qwertz_dot_dead hu-101_qwertz_dot_nodead hu-102_qwerty_comma_dead
hu-102_qwerty_comma_nodead hu-102_qwerty_dot_dead hu-102_qwerty_dot_nodead
hu-102_qwertz_comma_dead hu-102_qwertz_comma_nodead hu-102_qwertz_dot_dead
hu-102_qwertz_dot_nodead hu-nodeadkeys hu-qwerty hu-standard id ie ie-CloGaelach ie-UnicodeExpert
ie-ogam_is434 il il-heb il-phonetic il-si2 in-eng in-iipa iq-ku iq-ku_alt iq-ku_ara iq-ku_f ir
ir-ku ir-ku_alt ir-ku_ara ir-ku_f is is-dvorak is-latin1 is-latin1-us is-mac is-mac_legacy it
it-fur it-geo it-ibm it-intl it-mac it-nodeadkeys it-scn it-us it-winkeys jp jp-OADG109A jp-dvorak
jp-kana86 ke ke-kik kr kr-kr104 kz-latin la-latin1 latam latam-colemak latam-deadtilde
latam-dvorak latam-nodeadkeys lk-us lt lt-ibm lt-lekp lt-lekpa lt-ratise lt-sgs lt-std lt-us lv
lv-adapted lv-apostrophe lv-ergonomic lv-fkey lv-modern lv-tilde ma-french ma-rif md md-gag me
me-latinalternatequotes me-latinunicode me-latinunicodeyz me-latinyz mk mk-cp1251 mk-utf ml
ml-fr-oss ml-us-intl ml-us-mac mm mm-mnw mm-shn mt mt-alt-gb mt-alt-us mt-us ng ng-hausa ng-igbo
ng-yoruba nl nl-mac nl-std nl-us no no-colemak no-colemak_dh no-colemak_dh_wide no-dvorak
no-latin1 no-mac no-mac_nodeadkeys no-nodeadkeys no-smi no-smi_nodeadkeys no-winkeys nz nz-mao ph
ph-capewell-dvorak ph-capewell-qwerf2k6 ph-colemak ph-dvorak pl pl-csb pl-dvorak
pl-dvorak_altquotes pl-dvorak_quotes pl-dvp pl-legacy pl-qwertz pl-szl pt pt-latin1 pt-latin9
pt-mac pt-mac_nodeadkeys pt-nativo pt-nativo-epo pt-nativo-us pt-nodeadkeys ro ro-latin2 ro-std
ro-winkeys rs-latin rs-latinalternatequotes rs-latinunicode rs-latinunicodeyz rs-latinyz ru
ru-cp1251 ru-cv_latin ru-ms ru-ruchey_en ru-yawerty se se-dvorak se-fi-ir209 se-fi-lat6 se-ir209
se-lat6 se-latin1 se-mac se-nodeadkeys se-smi se-svdvorak se-us se-us_dvorak sg sg-latin1
sg-latin1-lk450 si si-alternatequotes si-us sk sk-bksl sk-prog-qwerty sk-prog-qwertz sk-qwerty
sk-qwerty_bksl sk-qwertz sr-cy sr-latin sv-latin1 sy-ku sy-ku_alt sy-ku_f tm tm-alt tr tr-alt tr-e
tr-f tr-intl tr-ku tr-ku_alt tr-ku_f tw tw-indigenous tw-saisiyat ua ua-cp1251 ua-crh ua-crh_alt
ua-crh_f ua-utf ua-utf-ws ua-ws uk us us-acentos us-acentos-old us-alt-intl us-altgr-intl
us-colemak us-colemak_dh us-colemak_dh_iso us-colemak_dh_ortho us-colemak_dh_wide
us-colemak_dh_wide_iso us-dvorak us-dvorak-alt-intl us-dvorak-classic us-dvorak-intl us-dvorak-l
us-dvorak-mac us-dvorak-r us-dvp us-euro us-haw us-hbs us-intl us-mac us-norman us-olpc2
us-symbolic us-workman us-workman-intl uz-latin vn vn-fr vn-us
"""

KEYMAPS = frozenset(_NAMES.split())
